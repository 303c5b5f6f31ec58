"""The jobs of a cluster, through Ray's Jobs API: submit a study, list, follow and stop jobs.

Every method raises a UsageError of one line if nothing answers, the token is not the cluster's, or the cluster runs
another Ray or Python. Ray's client reads the token from RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or
~/.ray/auth_token.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import ray
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from vsetune.errors import Problem, UsageError, one_line
from vsetune.home.web import proxy_of, require_web
from vsetune.home.whole_files import FULL
from vsetune.study.job_package import STOP_WITHIN_S, JobPackage, cannot_pack

STUDY_KEY = "vsetune.study"
"""Metadata key of a job: the name of the study that it runs."""

_OVER = {"SUCCEEDED", "FAILED", "STOPPED"}
_OUR_CODES = {1, 2, 3, 4, 130}
_CARRIERS = {"aiohttp", "requests", "urllib3"}
"""HTTP libraries of Ray's client, whose exceptions it passes on."""

_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private.runtime_env.packaging",
    "ray._private.runtime_env.working_dir",
)
"""Loggers of Ray's client that report how it packs and uploads."""


@dataclass(frozen=True)
class Job:
    """A job as the cluster reports it. status: Ray's name of it. started, ended: seconds since 1970, None if not yet.

    study: None for a job that was not submitted by vsetune. message: one line from Ray.
    """

    id: str
    study: str | None
    status: str
    command: str
    started: float | None
    ended: float | None
    driver_exit_code: int | None
    message: str

    @property
    def is_over(self) -> bool:
        return self.status in _OVER

    @property
    def exit_code(self) -> int:
        """The exit status of `vsetune study run` in the job: 0, 1, 2, 3, 4, or 130 for a job that was stopped."""
        if self.status in ("SUCCEEDED", "STOPPED"):
            return 0 if self.status == "SUCCEEDED" else 130
        return self.driver_exit_code if self.driver_exit_code in _OUR_CODES else 1


class JobServer:
    """The Jobs API of one cluster. address: None for the address in the environment, see `job_address`."""

    def __init__(self, address: str | None = None) -> None:
        """Connects and compares versions."""
        self.address = job_address(address)
        require_listener(self.address)
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        with self._answering(), _no_other_address():
            self._client = JobSubmissionClient(self.address)
            self._require_same_versions()

    def jobs(self) -> list[Job]:
        """All jobs that the cluster lists, the newest first. Drivers that were not submitted as jobs are left out."""
        with self._answering():
            found = [_job(details) for details in self._client.list_jobs() if details.submission_id]
        return sorted(found, key=lambda job: job.started or 0.0, reverse=True)

    def job(self, name: str) -> Job:
        """The job with this id, or the newest job of the study with this name. UsageError if there is none."""
        known = self.jobs()
        found = [job for job in known if name == job.id] or [job for job in known if name == job.study]
        if not found:
            there = ", ".join(job.id for job in known[:5]) or "none"
            raise UsageError(
                "VSE-S056", "job {job}: not on cluster {cluster}, which has: {known}; see `vsetune job list`", job=name,
                cluster=self.address, known=there,
            )
        return found[0]

    def running(self, study: str) -> Job | None:
        """The job of a study that has not ended; None if there is none."""
        return next((job for job in self.jobs() if job.study == study and not job.is_over), None)

    def submit(self, package: JobPackage) -> tuple[Job, bool]:
        """(the job, whether it is new). A study that runs already is not started a second time, even if two people
        submit it at once: both jobs get the same id (STUDY-1, STUDY-2, ...), and Ray accepts only one of them.
        """
        earlier = self.running(package.study)
        if earlier is not None:
            return earlier, False
        job_id = f"{package.study}-{self._next_number(package.study)}"
        try:
            with self._answering():
                self._client.submit_job(
                    entrypoint=package.command, submission_id=job_id,
                    runtime_env={"working_dir": str(package.folder), "env_vars": dict(package.variables)},
                    metadata={STUDY_KEY: package.study},
                )
        except UsageError as error:
            if "already exists" not in str(error.__cause__):
                raise
            return self.job(job_id), False
        return self.job(job_id), True

    def log(self, job: Job) -> str:
        """The job's output so far."""
        with self._answering():
            return str(self._client.get_job_logs(quote(job.id)))

    def follow(self, job: Job) -> Iterator[str]:
        """The job's output from the beginning, in pieces, until it ends. UsageError when the connection breaks."""
        if proxy_of(self.address) is not None:  # Ray's client follows by a WebSocket, which takes no proxy
            yield from self._polled(job)
            return
        pieces = self._client.tail_job_logs(quote(job.id))
        with asyncio.Runner() as runner:
            while (piece := self._piece(runner, pieces)) is not None:
                yield piece

    def _polled(self, job: Job) -> Iterator[str]:
        sent = ""
        while True:
            job = self.job(job.id)
            text = self.log(job)
            if new := text[len(sent):]:
                yield new
            if job.is_over:
                return
            sent = text
            time.sleep(_POLL_EVERY_S)

    def _piece(self, runner: asyncio.Runner, pieces: AsyncIterator[str]) -> str | None:
        """The next piece of a log; None at its end."""

        async def following() -> str | None:
            return await anext(pieces, None)

        with self._answering():
            return runner.run(following())

    def stop(self, job: Job) -> Job:
        """Asks a job to stop and waits until it has stopped, which includes writing checkpoints. Waits for at most
        STOP_WITHIN_S + 30 seconds. Returns the job as it is then."""
        with self._answering():
            self._client.stop_job(quote(job.id))
        until = time.monotonic() + STOP_WITHIN_S + 30
        while not job.is_over and time.monotonic() < until:
            time.sleep(0.5)
            job = self.job(job.id)
        return job

    def _next_number(self, study: str) -> int:
        numbers = [re.fullmatch(rf"{re.escape(study)}-(\d+)", job.id) for job in self.jobs()]
        return max((int(found[1]) for found in numbers if found), default=0) + 1

    def _require_same_versions(self) -> None:
        """UsageError if the cluster runs another version of Ray, or another minor version of Python."""
        answer = self._client._do_request("GET", "/api/v0/cluster_metadata")  # no public method reports Python
        facts: Mapping[str, Any] = answer.json().get("data") or {}
        there = str(facts.get("rayVersion", "?")), _minor(str(facts.get("pythonVersion", "?")))
        here = ray.__version__, _minor(platform.python_version())
        if there != here:
            raise UsageError(
                "VSE-S045", "cluster {cluster}: runs Ray {ray_there} on Python {python_there}, here are Ray {ray_here} "
                "on Python {python_here}; install the same on both sides (constraints.txt pins Ray), or submit from "
                "the head node", cluster=self.address, ray_there=there[0], python_there=there[1], ray_here=here[0],
                python_here=here[1],
            )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turns the errors of Ray's client into a UsageError of one line."""
        try:
            yield
        except AuthenticationError as error:
            raise UsageError(_token_problem(str(error), self.address)) from error
        except RuntimeError as error:
            raise UsageError(_refusal(str(error), self.address)) from error
        except Exception as error:
            if not isinstance(error, OSError | ValueError) and type(error).__module__.split(".")[0] not in _CARRIERS:
                raise
            if isinstance(error, OSError) and error.errno in FULL:
                raise cannot_pack(error) from error
            if "exceeds the maximum size" in str(error):
                raise UsageError(
                    "VSE-S057", "job: too large to send ({reason}); list files that it does not need in .rayignore",
                    reason=one_line(error),
                ) from error
            raise UsageError(
                "VSE-S044", "cluster {cluster}: does not answer as a Ray dashboard does ({reason}); check the address, "
                "and whether the head node is up", cluster=self.address, reason=one_line(error),
            ) from error


def _job(details: Any) -> Job:
    started, ended = (
        None if moment is None else moment / 1000 for moment in (details.start_time, details.end_time)
    )
    return Job(
        details.submission_id, (details.metadata or {}).get(STUDY_KEY), str(details.status.value), details.entrypoint,
        started, ended, details.driver_exit_code, one_line(details.message or "no message"),
    )


def _token_problem(text: str, cluster: str) -> Problem:
    if "couldn't find an authentication token" in text:
        return Problem.of(
            "VSE-S046", "cluster {cluster}: needs a token and none was found here; copy the cluster's into "
            "~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH", cluster=cluster,
        )
    if "cannot be opened or is empty" in text:
        return Problem.of(
            "VSE-S047", "cluster {cluster}: needs a token, and RAY_AUTH_TOKEN_PATH names {file}, which cannot be read "
            "or is empty; put the cluster's token there", cluster=cluster, file=os.environ.get("RAY_AUTH_TOKEN_PATH"),
        )
    mode = os.environ.get("RAY_AUTH_MODE", "token")
    if mode.lower() != "token":
        return Problem.of(
            "VSE-S048", "cluster {cluster}: needs a token, and RAY_AUTH_MODE is {mode!r} here, so that none was sent; "
            "set it to token", cluster=cluster, mode=mode,
        )
    return Problem.of(
        "VSE-S049", "cluster {cluster}: refuses the token found here (RAY_AUTH_TOKEN, else the file of "
        "RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token); copy the cluster's", cluster=cluster,
    )


def _refusal(text: str, cluster: str) -> Problem:
    if "No available agent" in text or "head node agent" in text:
        return Problem.of(
            "VSE-S050", "cluster {cluster}: has only just started and takes no jobs; repeat in a minute",
            cluster=cluster,
        )
    if "ray[default]" in text:
        return Problem.of(
            "VSE-S051", "cluster {cluster}: cannot be asked from here: Ray's client for jobs is missing; pip install "
            "'vsetune[jobs]'", cluster=cluster,
        )
    if text.startswith("WebSocket"):
        return Problem.of(
            "VSE-S052", "cluster {cluster}: the connection broke ({reason})", cluster=cluster, reason=one_line(text)
        )
    if "Version check returned 404" in text:
        return Problem.of(
            "VSE-S044", "cluster {cluster}: does not answer as a Ray dashboard does ({reason}); check the address, and "
            "whether the head node is up", cluster=cluster, reason="404 for its version",
        )
    reason = one_line(text.replace("Traceback (most recent call last):", ""))
    return Problem.of("VSE-S053", "cluster {cluster}: refused ({reason})", cluster=cluster, reason=reason)


@contextmanager
def _no_other_address() -> Iterator[None]:
    """Removes variables that Ray's client prefers to the address that it is given; restores them afterwards."""
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(before)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_PORT = 8265
_ANSWERS_WITHIN_S, _POLL_EVERY_S = 5.0, 2.0


def job_address(given: str | None) -> str:
    """The address without a slash at its end: the given one, else that of the environment, else this machine's.

    `HOST` and `HOST:PORT` are read as http, and the address of a page of the dashboard as the dashboard's. An IPv6 host
    is `[::1]`, or `::1` without a port. RAY_ADDRESS may name the port of the cluster itself (`HOST:6379`, `auto`,
    `ray://HOST:10001`), as in shells on a node; the dashboard is then assumed at its own port on that host.
    UsageError for text that cannot be an address.
    """
    if given is not None:
        return _as_http(given, where="--address")
    for name in _VARIABLES:
        value = os.environ.get(name)
        if value:
            return _as_http(value if "://" in value or name == _VARIABLES[0] else _dashboard_of(value), where=name)
    return DEFAULT_ADDRESS


def require_listener(address: str) -> None:
    """UsageError if nothing listens there. Ray's client would wait forever for a host that drops packets."""
    try:
        require_web(address, within_s=_ANSWERS_WITHIN_S)
    except ssl.SSLError as error:
        raise UsageError(
            "VSE-S460", "cluster {cluster}: its certificate is not accepted ({reason}); correct it, or name the file "
            "of its authority in REQUESTS_CA_BUNDLE", cluster=address, reason=error.args[0],
        ) from error
    except OSError as error:
        raise UsageError(
            "VSE-S043", "cluster {cluster}: nothing answers there ({reason}); start it (`ray up cluster.yaml`, `ray "
            "start --head`), open a tunnel to it (`ray dashboard cluster.yaml`), or name it with --address",
            cluster=address, reason=error,
        ) from error


def _as_http(text: str, *, where: str) -> str:
    if text.startswith("ray://"):
        text = _dashboard_of(text.removeprefix("ray://"))
    address = text if "://" in text else f"http://{_host(text.rstrip('/'))}"
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or any(sign.isspace() for sign in text):
        raise UsageError(
            "VSE-S054", "{where}: got {got!r}, need the address of the dashboard, as in {example}", where=where,
            got=text[:80], example=DEFAULT_ADDRESS,
        )
    if parts.username or parts.password:
        raise UsageError(
            "VSE-S055", "{where}: contains a user or password; Ray takes a token instead, see ~/.ray/auth_token",
            where=where,
        )
    port = "" if parts.port or parts.scheme == "https" else f":{_PORT}"
    return f"{parts.scheme}://{parts.netloc.rstrip(':')}{port}{parts.path.rstrip('/')}"


def _host(text: str) -> str:
    """The text with an IPv6 address, if it is one alone, in the brackets that addresses need."""
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def _dashboard_of(cluster: str) -> str:
    """The dashboard's address on the host of a cluster. cluster: HOST:PORT, or `auto` or `local` for this machine."""
    if cluster in ("auto", "local"):
        return DEFAULT_ADDRESS
    host = _host(cluster.rstrip("/"))
    return f"http://{host if host.endswith(']') else host.rpartition(':')[0] or host}:{_PORT}"
