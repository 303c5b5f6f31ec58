"""What a server may refuse is one line that says how to mend it, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import aws_account
from refusals import refused

from vsetune.errors import StorageError
from vsetune.storage import s3
from vsetune.storage.home_files import require_usable


class Refusing(BaseHTTPRequestHandler):
    """Answers everything with the S3 error code of its server."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f"<Error><Code>{self.server.code}</Code><Message>no</Message></Error>".encode()  # type: ignore[attr-defined]
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Nothing."""

    do_PUT = do_DELETE = answer  # noqa: N815


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with aws_account(monkeypatch, endpoint=f"http://127.0.0.1:{server.server_port}"):
        yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "code",
    [
        "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "NoSuchBucket", "RequestTimeTooSkewed",
        "ExpiredToken",
    ],
)
def test_a_refusal_comes_with_its_remedy(server: ThreadingHTTPServer, tmp_path: Path, code: str) -> None:
    server.code = code  # type: ignore[attr-defined]
    page = tmp_path / "page.html"
    page.write_text("a page")
    with refused("VSE-O027", by=StorageError, url="s3://home/x/page.html", advice=s3._ADVICE[code]):
        s3.upload(page, "s3://home/x/page.html")
    with refused("VSE-O027", by=StorageError, advice=s3._ADVICE[code]) as caught:
        require_usable("s3://home/x", named="VSETUNE_HOME")
    assert str(caught.value).startswith("VSETUNE_HOME: s3://home/x/probe-")


def test_missing_keys_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3._client.cache_clear()
    with refused("VSE-O027", by=StorageError, advice=s3._ADVICE["NoCredentialsError"]):
        require_usable("s3://home/x", named="VSETUNE_HOME")
    s3._client.cache_clear()
