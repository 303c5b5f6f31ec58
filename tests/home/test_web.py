"""What answers at a web address: directly, through a proxy, with a certificate."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from forward_proxy import forward_proxy
from local_certificate import write_certificate
from local_http import answering
from refusals import refused

from vsetune.errors import StorageError, UnusableStore, UsageError
from vsetune.home.web import require_web
from vsetune.records.mlflow_client import open_client
from vsetune.study.submission import require_listener

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
AWAY = "mlflow.invalid:5000"
"""A host that only the proxy knows."""


class Server(BaseHTTPRequestHandler):
    """Answers every request as an MLflow without experiments does."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(b"{}")

    def answer(self, content: bytes = b"") -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *given: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_store_and_a_cluster_behind_a_forward_proxy_are_reached(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with answering(Server) as server, forward_proxy({AWAY: server.removeprefix("http://")}) as (proxy, asked):
        with refused("VSE-R029", by=StorageError):
            open_client(f"http://{AWAY}")
        monkeypatch.setenv(variable, proxy)
        open_client(f"http://{AWAY}")
        require_listener(f"http://{AWAY}")
        assert asked == [f"HEAD {AWAY}", f"POST {AWAY}", f"HEAD {AWAY}"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,.invalid")
        with refused("VSE-R029", by=StorageError):
            open_client(f"http://{AWAY}")
        require_web(server, within_s=5.0)
        assert len(asked) == 3


@pytest.mark.parametrize("proxy", ["dead", "without the host"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_does_not_reach_it_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str, scheme: str
) -> None:
    with forward_proxy({}) as (there, _):
        place = "127.0.0.1:9" if proxy == "dead" else there.removeprefix("http://")
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:hunter2@{place}")
        with refused("VSE-R029", by=StorageError) as caught:
            open_client(f"{scheme}://{AWAY}")
        with refused("VSE-S043") as silent:
            require_listener(f"{scheme}://{AWAY}")
    for error in (caught, silent):
        assert f"@{place}: " in str(error.value)
        assert ("502" in str(error.value)) == (proxy != "dead")
        assert "hunter2" not in str(error.value)


@contextmanager
def over_tls(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_certificate_that_is_not_accepted_is_named_with_the_variables_that_mend_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate = write_certificate(tmp_path / "mine.pem")
    with over_tls(certificate) as place, forward_proxy({place: place}) as (proxy, asked):
        for way in ("", proxy):
            monkeypatch.setenv("https_proxy", way)
            with pytest.raises(UnusableStore, match=r"self-signed certificate.*REQUESTS_CA_BUNDLE") as caught:
                open_client(f"https://{place}")
            with pytest.raises(UsageError, match=r"self-signed certificate.*REQUESTS_CA_BUNDLE") as silent:
                require_listener(f"https://{place}")
            assert (caught.value.problem.code, silent.value.problem.code) == ("VSE-R460", "VSE-S460")
        assert asked == [f"CONNECT {place}"] * 2
        with answering(Server) as plain, refused("VSE-R029", by=StorageError):
            monkeypatch.delenv("https_proxy")
            open_client(plain.replace("http:", "https:"))
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(certificate))
        open_client(f"https://{place}")
        monkeypatch.delenv("MLFLOW_TRACKING_SERVER_CERT_PATH")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        open_client(f"https://{place}")
        require_listener(f"https://{place}")
