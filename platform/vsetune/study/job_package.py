"""A study as a job: the files to send, the command to run there, and the environment variables.

All of it is visible to anyone who may list the jobs of the cluster, and Ray writes it to its logs. Secrets are
therefore not sent: they belong on the nodes (an instance role, a Kubernetes secret, a file that only the nodes have),
see docs/clusters.md.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.spec.loading import read_yaml
from vsetune.errors import ConfigError, Problem, StorageError
from vsetune.home.addresses import shown_url
from vsetune.home.paths import expand_user
from vsetune.home.whole_files import MAKE_ROOM, free_in
from vsetune.version import PACKAGE_FOLDER, REVISION_VARIABLE, git_revision

PASSED_ON = (
    "VSETUNE_HOME", "VSETUNE_LOG", "MLFLOW_TRACKING_URI", "MLFLOW_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
)
"""Variables of the submitting shell that are passed to the job, if they are set and valid there too."""
_PLACES = ("VSETUNE_HOME", "MLFLOW_TRACKING_URI")

STOP_WITHIN_S = 120
"""How long a stopped job may take to write its checkpoints. Ray's own default is 3 seconds."""


@dataclass(frozen=True)
class JobPackage:
    """A job to submit. folder: sent whole. command: for a shell in a copy of it. variables: of the job and its workers.

    left_here: variables that name a place on this machine; the job uses the nodes' own values of them.
    """

    study: str
    folder: Path
    command: str
    variables: Mapping[str, str]
    left_here: Sequence[str]


@contextmanager
def packed(file: Path, study: str) -> Iterator[JobPackage]:
    """A study file as a job. The files collected for it exist as long as the context.

    This package, the file and the plugin folders beside it are sent. ConfigError lists every problem; StorageError if
    there is no room to collect the files.
    """
    plugins = _plugin_folders(file)
    in_entrypoint, variables, left_here = _variables()
    with tempfile.TemporaryDirectory(prefix="vsetune-job-") as scratch:
        folder = Path(scratch)
        try:
            _put_together(folder, file, plugins)
        except OSError as error:
            raise cannot_pack(error) from error
        there = shlex.quote(f"study/{file.name}")
        command = f"{in_entrypoint}python -m vsetune.cli.entry study run {there} --resume --address auto"
        yield JobPackage(study, folder, command, variables, left_here)


def cannot_pack(error: OSError) -> StorageError:
    """The error of one line for a package that cannot be made, also if the error lists hundreds of files."""
    causes = error.args[0] if isinstance(error, shutil.Error) else []
    why = str(causes[0][2]).partition(": ")[0].rpartition("] ")[2] if causes else error.strerror or str(error)
    place = tempfile.gettempdir()
    return StorageError(
        "VSE-S058", "job: cannot be packed in {folder} ({reason}; {free}); {hint}, then repeat", folder=place,
        reason=why, free=free_in(Path(place)), hint=MAKE_ROOM,
    )


def _put_together(folder: Path, file: Path, plugins: Sequence[str]) -> None:
    shutil.copytree(PACKAGE_FOLDER, folder / "vsetune", ignore=_caches)
    (folder / "study").mkdir()
    shutil.copy(file, folder / "study")
    for plugin in plugins:
        shutil.copytree(file.parent / plugin, folder / "study" / plugin, ignore=_caches, dirs_exist_ok=True)


def _plugin_folders(file: Path) -> list[str]:
    """The folders under `plugins`, as written; one that is gone is left out, since the study may have kept a copy.
    ConfigError for one that is not below that of the study file."""
    here = file.parent.resolve()
    references = read_yaml(file).get("plugins") or []
    folders = [text for text in references if (here / expand_user(text)).is_dir()]
    outside = [
        text for text in folders
        if Path(expand_user(text)).is_absolute() or not (here / text).resolve().is_relative_to(here)
    ]
    if outside:
        raise ConfigError([Problem.of(
            "VSE-S059", "{file}: plugins: {plugin} does not lie below the folder of the study file, so a job cannot "
            "take it along; move it there and name it relative to the file, or install it on the nodes as a package",
            file=file, plugin=text,
        ) for text in outside])
    return folders


def _variables() -> tuple[str, dict[str, str], list[str]]:
    """(assignments before the command, variables of the runtime environment, names of variables that are not sent).

    ConfigError for a variable that contains a password. Folders and database files of this machine are not sent: the
    submitting laptop may have its own VSETUNE_HOME. An address with `${NAME}` in it is set before the command: there it
    stays unchanged until vsetune inserts NAME on the node, quoted as addresses need it. In a runtime environment Ray
    would insert it unquoted, or an empty text.
    """
    given = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    secret = [name for name, value in given.items() if shown_url(value) != value]
    if secret:
        raise ConfigError([Problem.of(
            "VSE-S060", "{variable}: contains a password, and anyone who lists jobs could read it; write ${{VARIABLE}} "
            "in its place and set that variable on the nodes", variable=name,
        ) for name in secret])
    left_here = [name for name in _PLACES if name in given and _is_here(given[name])]
    given = {name: value for name, value in given.items() if name not in left_here}
    literal = {name: value for name, value in given.items() if "${" in value}
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in literal.items())
    variables = {name: value for name, value in given.items() if name not in literal}
    variables |= {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WITHIN_S), REVISION_VARIABLE: git_revision()}
    return before, variables, left_here


def _is_here(place: str) -> bool:
    return "://" not in place or place.startswith(("sqlite:", "file:"))


_caches = shutil.ignore_patterns("__pycache__", "*.pyc", ".rayignore")
