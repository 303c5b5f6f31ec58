"""A study with passwords in its addresses and keys in its environment uses them, and leaves none of them anywhere."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import boto3
import psutil
import pytest
import yaml
from moto.server import ThreadedMotoServer
from rich.console import Console

from vsetune.config.study.study_spec import ScenesSpec
from vsetune.study.preparation import make_scenes

PLATFORM = Path(__file__).parents[2] / "platform"
TINY = {
    "study": "tiny",
    "data": {"path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
    "losses": [{"name": "lmh"}], "training": {"epochs": 1, "batch_size": 40, "learning_rate": 1e-3},
    "search": {"configurations": 2}, "scheduler": {"kind": "none"}, "seeds": [0],
}
# Each is found nowhere else by chance. Those of URLs hold what must be quoted there.
OF_TRACKING, OF_VARIABLE = "trAck/pl4nted@one", "variAble?pl4nted#three"
OF_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAPL4NTEDFOUR", "AWS_SECRET_ACCESS_KEY": "aWs/pl4nted+five",
    "AWS_SESSION_TOKEN": "aWs/pl4nted=six", "AWS_SECURITY_TOKEN": "aWs/pl4nted=seven",
    "RAY_AUTH_TOKEN": "rAy0pl4nted0eight0" * 3, "HF_TOKEN": "hf_pl4nted_nine", "PLANTED_PASSWORD": OF_VARIABLE,
}
PLANTED = (OF_TRACKING, *OF_ENVIRONMENT.values())


@dataclass(frozen=True)
class Place:
    """Where a study runs; everything that it and its Ray leave lies under `folder`. Short: sockets lie there too."""

    folder: Path

    def study(self, **changes: Any) -> Path:
        path = self.folder / "study.yaml"
        path.write_text(yaml.safe_dump(TINY | changes))
        return path

    def run(self, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | OF_ENVIRONMENT | variables | {
            "PYTHONPATH": str(PLATFORM), "VSETUNE_HOME": str(self.folder / "home"), "VSETUNE_LOG": "DEBUG",
            "RAY_TMPDIR": str(self.folder / "ray"), "TMPDIR": str(self.folder / "tmp"), "COLUMNS": "200",
            "HOME": str(self.folder / "user"),
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_DEFAULT_REGION": "us-east-1",
        }
        for variable in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"):
            environment.pop(variable, None)
        return subprocess.run(
            [sys.executable, "-m", "vsetune.cli.main", *map(str, words)], cwd=self.folder, env=environment,
            capture_output=True, text=True, timeout=240,
        )


@pytest.fixture
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="vs-", dir="/tmp"))
    for name in ("home", "ray", "tmp", "user"):
        (folder / name).mkdir()
    yield Place(folder)
    shutil.rmtree(folder, ignore_errors=True)


def forms(secret: str) -> set[bytes]:
    """How a secret may be written down: as it is, quoted for a URL, in base64."""
    encoded = [base64.b64encode(secret.encode()).decode().rstrip("=")]
    return {text.encode() for text in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), *encoded)}


def leaks(place: Place, done: Sequence[subprocess.CompletedProcess[str]], *, without: Sequence[Path]) -> list[str]:
    """`where: secret` for every planted secret in what was printed and in the files under the place."""
    texts = {f"output of {run.args[3:]}": (run.stdout + run.stderr).encode() for run in done}
    for path in place.folder.rglob("*"):
        if path.is_file() and path not in without:
            texts[str(path.relative_to(place.folder))] = path.read_bytes() + str(path).encode()
    return [
        f"{where}: {secret}" for where, text in texts.items() for secret in PLANTED
        if any(form in text for form in forms(secret))
    ]


@pytest.fixture
def server(place: Place) -> Iterator[str]:
    """The address of an MLflow server that only answers to user `planter` with the password OF_TRACKING."""
    behind, front = free_port(), free_port()
    folder = place.folder / "server"
    folder.mkdir()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(behind), "--backend-store-uri",
             f"sqlite:///{folder / 'mlflow.db'}", "--artifacts-destination", str(folder / "kept")],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    guard = ThreadingHTTPServer(("127.0.0.1", front), guard_of(behind))
    threading.Thread(target=guard.serve_forever, daemon=True).start()
    try:
        wait_for(f"http://127.0.0.1:{behind}/health")
        yield f"http://planter:{quote(OF_TRACKING, safe='')}@127.0.0.1:{front}"
    finally:
        guard.shutdown()
        guard.server_close()
        for each in [*psutil.Process(process.pid).children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(timeout=30)


@pytest.fixture
def endpoint(place: Place) -> Iterator[str]:
    """The address of an S3 server that holds the data set `s3://data/scenes`. Without keys boto3 does not ask it."""
    made = place.folder / "made"
    make_scenes(made, ScenesSpec(train=24, validation=8, test=8), Console(quiet=True))
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="of-the-test", aws_secret_access_key="of-the-test",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="data")
    for path in (path for path in made.rglob("*") if path.is_file()):
        client.upload_file(str(path), "data", f"scenes/{path.relative_to(made)}")
    client.close()
    yield address
    server.stop()


def guard_of(port: int) -> type[BaseHTTPRequestHandler]:
    wanted = "Basic " + base64.b64encode(f"planter:{OF_TRACKING}".encode()).decode()

    class Guard(BaseHTTPRequestHandler):
        """Passes a request on to `port` if it carries the password."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != wanted:
                self.give(401, b"{}")
                return
            kept = {name: text for name, text in self.headers.items() if name.lower() in ("content-type", "accept")}
            url = f"http://127.0.0.1:{port}{self.path}"
            request = urllib.request.Request(url, body or None, kept, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    self.give(response.status, response.read())
            except urllib.error.HTTPError as error:
                self.give(error.code, error.read())

        def give(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            """Nothing."""

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Guard, f"do_{method}", Guard.answer)
    return Guard


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.3)
    raise TimeoutError(url)


@pytest.mark.slow
def test_a_study_uses_its_secrets_and_leaves_none_of_them(place: Place, server: str, endpoint: str) -> None:
    """Tracking behind a password in the URL; workers need the keys of the environment."""
    file = place.study(data={"path": "s3://data/scenes"}, tracking={"uri": server}, search={"configurations": 2})
    done = [
        place.run("study", "run", file, AWS_ENDPOINT_URL=endpoint),
        place.run("study", "run", file, "--resume", AWS_ENDPOINT_URL=endpoint),
    ]
    assert [run.returncode for run in done] == [0, 0], done[0].stderr + done[1].stderr
    assert "2 finished" in done[0].stderr
    done.append(place.run("study", "run", file, "--dry-run"))
    done.append(place.run("leaderboard", "show", "tiny"))
    assert done[-1].returncode == 0, done[-1].stderr
    assert list(place.folder.glob("ray/*/session_latest/logs/*raylet*")), "nothing of Ray was searched"
    found = leaks(place, done, without=[file])
    assert not found, "\n".join(found)
