"""`vsetune job`: studies as jobs of a Ray cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.options import Json, StudyFile, flag
from vsetune.cli.output import FittingTable, coded, complain, inform, interruptible, print_json, results, stderr
from vsetune.config.study.cells import resolve_cells
from vsetune.errors import Problem, UsageError
from vsetune.home.addresses import masked
from vsetune.study.study_file import load_study

if TYPE_CHECKING:
    from vsetune.study.submission import Job, JobServer

app = typer.Typer(
    no_args_is_help=True, help="Run studies as jobs of a Ray cluster: submit, list, follow, stop.",
    epilog="Example: vsetune job submit studies/quickstart.yaml --address http://127.0.0.1:8265",
)

Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help="the cluster's dashboard; default: RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or here"),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="id of a job, or name of its study", show_default=False)]


@app.command(epilog="Example: vsetune job submit studies/quickstart.yaml --no-wait")
def submit(
    study: StudyFile,
    address: Address = None,
    no_wait: Annotated[bool, flag("--no-wait", "do not follow the output of the job")] = False,
) -> None:
    """Run a study on a cluster, from where an earlier run ended, and follow it; Ctrl-C leaves it running.

    A study that runs there already is followed, not started twice. Exit codes: those of `study run`, 130 if
    the cluster is lost; with --no-wait 0.
    """
    from vsetune.study.job_package import packed
    from vsetune.study.submission import JobServer

    spec = load_study(study)
    resolve_cells(spec, where=str(study))
    with packed(study, spec.study) as package:
        server = JobServer(address)
        with stderr.status("sending the job"):
            job, is_new = server.submit(package)
    if is_new:
        passed = [f"{name}={value}" for name, value in package.variables.items() if not name.startswith("RAY_")]
        inform(f"job {job.id}: submitted to {server.address}{' with ' if passed else ''}{', '.join(passed)}")
        if package.left_here:
            left = ", ".join(package.left_here)
            inform(f"places on this machine that are not passed on, the nodes have theirs: {left}")
    else:
        inform(f"job {job.id}: study {spec.study} runs already ({job.status.lower()}); not started again")
    if no_wait:
        inform(f"follow it with: vsetune job attach {job.id}")
        return
    _follow(server, job)


@app.command("list", epilog="Example: vsetune job list")
def list_jobs(
    address: Address = None,
    as_json: Json = False,
) -> None:
    """The jobs that the cluster remembers, the newest first."""
    from vsetune.study.submission import JobServer

    jobs = JobServer(address).jobs()
    if as_json:
        print_json([_plain(job) for job in jobs])
        return
    columns = ("job", "study", "status", "started", "minutes", Column("command", overflow="fold"))
    results.print(FittingTable(columns, [_row(job) for job in jobs]))


def _row(job: Job) -> list[str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started)) if job.started else "not yet"
    return [job.id, job.study or "", _status(job), started, _minutes(job), masked(job.command)]


@app.command(epilog="Example: vsetune job logs quickstart")
def logs(job: JobName, address: Address = None) -> None:
    """Print the output of a job so far."""
    from vsetune.study.submission import JobServer

    server = JobServer(address)
    results.out(masked(server.log(server.job(job))), end="")


@app.command(epilog="Example: vsetune job attach quickstart-1")
def attach(job: JobName, address: Address = None) -> None:
    """Follow the output of a job until it ends, and exit with its exit code, or with 130 if the cluster is lost.

    Ctrl-C leaves the job running.
    """
    from vsetune.study.submission import JobServer

    server = JobServer(address)
    _follow(server, server.job(job))


@app.command(epilog="Example: vsetune job stop quickstart")
def stop(job: JobName, address: Address = None) -> None:
    """Stop a job once its trials have written their checkpoints; submitting the study again goes on.

    Exit code 0 when it has ended, else 1.
    """
    from vsetune.study.submission import JobServer

    server = JobServer(address)
    found = server.job(job)
    if found.is_over:
        inform(f"job {found.id}: has ended already ({_status(found)}); nothing to stop")
        return
    with interruptible("it was asked to stop all the same"), stderr.status("waiting for the checkpoints"):
        ended = server.stop(found)
    if not ended.is_over:
        inform(f"job {ended.id}: asked to stop, still {_status(ended)}; see its output: vsetune job logs {ended.id}")
        raise typer.Exit(1)
    inform(f"job {ended.id}: {_status(ended)}; go on by submitting the study again")


def _follow(server: JobServer, job: Job) -> None:
    """Print the log to stdout until the job ends. Exits with its exit code, or 130 where the cluster is lost before."""
    try:
        with interruptible(f"job {job.id} goes on; see it again with: vsetune job attach {job.id}"):
            for piece in server.follow(job):
                results.out(masked(piece), end="")
            ended = _ended(server, job)
        lost = None if ended.is_over else "the connection ended first"
    except UsageError as error:
        lost = coded(error.problem)
    if lost is not None:
        complain("error", Problem.of(
            "VSE-X024", "job {job}: not followed to its end ({reason}); when the head is up, submit the study again: "
            "that follows the job if it still runs, else it continues from the checkpoints.", job=job.id, reason=lost,
        ))
        raise typer.Exit(130)
    inform(f"job {ended.id}: {_status(ended)}")
    raise typer.Exit(ended.exit_code)


def _ended(server: JobServer, job: Job) -> Job:
    """The job after the end of its log; its status arrives a little later."""
    for _ in range(20):
        job = server.job(job.id)
        if job.is_over:
            break
        time.sleep(0.5)
    return job


def _status(job: Job) -> str:
    """Ray's name of the status in lower case, with the exit code of a failed job."""
    code = "" if job.driver_exit_code in (None, 0) else f", exit code {job.driver_exit_code}"
    return f"{job.status.lower()}{code}"


def _minutes(job: Job) -> str:
    return "" if job.started is None else f"{((job.ended or time.time()) - job.started) / 60:.1f}"


def _plain(job: Job) -> dict[str, object]:
    return {
        "job": job.id, "study": job.study, "status": job.status, "command": masked(job.command),
        "started": job.started, "ended": job.ended, "exit_code": job.exit_code if job.is_over else None,
        "message": masked(job.message),
    }
