"""What a server may refuse is one line that says how to mend it, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mock_bucket import aws_account
from refusals import refused

from vsetune.errors import StorageError
from vsetune.home import s3
from vsetune.home.addresses import usable_url
from vsetune.home.hashes import sha256_hex
from vsetune.home.home_files import require_usable
from vsetune.home.paths import HOME_VARIABLE, local_path, remote_home, usable_path, usable_uri


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


class Simple(BaseHTTPRequestHandler):
    """Stores objects, and knows only some conditions of writes. `server.knows`: headers; `server.objects`."""

    def do_PUT(self) -> None:
        content, there = self.rfile.read(int(self.headers.get("Content-Length") or 0)), self._objects.get(self.path)
        knows = self.server.knows  # type: ignore[attr-defined]
        is_refused = ("If-None-Match" in knows and self.headers.get("If-None-Match") and there is not None) or (
            "If-Match" in knows and self.headers.get("If-Match") and self.headers["If-Match"] != there
        )
        if not is_refused and "storing" in knows:
            self._objects[self.path] = f'"{sha256_hex(content)[:32]}"'
        self._answer(412 if is_refused else 200)

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self._objects else 404)

    def do_DELETE(self) -> None:
        self._objects.pop(self.path, None)
        self._answer(204)

    @property
    def _objects(self) -> dict[str, str]:
        return self.server.objects  # type: ignore[attr-defined, no-any-return]

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("ETag", self._objects.get(self.path, '"none"'))
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 18:00:00 GMT")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(("knows", "code", "fields"), [
    ({"storing", "If-Match"}, "VSE-O037", {"header": "If-None-Match"}),
    ({"storing", "If-None-Match"}, "VSE-O037", {"header": "If-Match"}),
    ({"If-None-Match", "If-Match"}, "VSE-O038", {}),
    ({"storing", "If-None-Match", "If-Match"}, None, {}),
])
def test_a_server_without_conditional_writes_is_refused_in_one_line(
    knows: set[str], code: str | None, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Simple)
    server.knows, server.objects = knows, {}  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with aws_account(monkeypatch, endpoint=f"http://127.0.0.1:{server.server_port}"):
        if code is None:
            require_usable("s3://home/x", named="VSETUNE_HOME")
        else:
            with refused(code, by=StorageError, **fields) as caught:
                require_usable("s3://home/x", named="VSETUNE_HOME")
            assert str(caught.value).startswith("VSETUNE_HOME: s3://home/x/probe-")
            assert "\n" not in str(caught.value)
    assert server.objects == {}  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


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


@pytest.mark.parametrize(("read", "given", "code", "fields"), [
    (usable_path, " ", "VSE-O010", {"found": " "}), (usable_path, "a\0b", "VSE-O011", {"found": "a\0b"}),
    (local_path, "s3://bucket/x", "VSE-O014", {"found": "s3://bucket/x"}), (usable_uri, "a b", "VSE-O016", {}),
    (s3.open_object, "s3://Not_A_Bucket!/x", "VSE-O003", {"url": "s3://Not_A_Bucket!/x"}),
])
def test_what_can_be_no_path_or_address_is_refused(
    read: Callable[[str], object], given: str, code: str, fields: dict[str, str]
) -> None:
    with refused(code, by=Exception, **fields):
        read(given)


@pytest.mark.parametrize(("url", "code", "fields"), [
    ("postgresql://me:***@host/db", "VSE-O005", {"url": "postgresql://me:***@host/db"}),
    ("postgresql://me:${NOT_SET_ANYWHERE}@host/db", "VSE-O007", {"variable": "NOT_SET_ANYWHERE"}),
])
def test_a_password_that_is_not_there_is_named_with_its_place(url: str, code: str, fields: dict[str, str]) -> None:
    with refused(code, where="tracking", **fields):
        usable_url(url, where="tracking")


def test_keys_in_the_address_of_a_home_are_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, "s3://key:secret@bucket/x")
    with refused("VSE-O004", where="VSETUNE_HOME: got s3://key:***@bucket/x"):
        remote_home()
