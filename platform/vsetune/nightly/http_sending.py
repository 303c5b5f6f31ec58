"""One request to a foreign server: bounded in time, with retries where they may help, and one-line errors."""

from __future__ import annotations

import base64
import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.secrets import masked, remember
from vsetune.errors import ConfigError, StorageError
from vsetune.nightly.time_limit import within

_log = logging.getLogger(__name__)
_LATER = {408, 425, 429, 500, 502, 503, 504}
_MOST_READ = 2000


@dataclass(frozen=True)
class Patience:
    """timeout_s: of one network operation; a try as a whole takes at most twice as long. pauses_s: between tries."""

    timeout_s: float = 10.0
    pauses_s: Sequence[float] = (2.0, 8.0, 30.0)
    sleep: Callable[[float], None] = time.sleep


USUAL = Patience()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would arrive as a GET, without its content."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def send(
    what: str, address: str, content: bytes, *, method: str, content_type: str, patience: Patience = USUAL
) -> None:
    """Deliver content. StorageError, one line: at once for refusals, after the last try for silence, connection errors
    and the status codes in `_LATER`.

    what: first words of the line, such as `webhook of SLACK_WEBHOOK`. address: http or https. User and password in it
    become a header; no message repeats it. ConfigError for an invalid address.
    """
    request = _request(what, address, content, method, content_type)
    for tried, pause in enumerate([*patience.pauses_s, None], start=1):
        trouble, may_help = _tried_in_time(request, patience.timeout_s)
        if trouble is None:
            return
        if not may_help or pause is None:
            tries = "" if tried == 1 else f" in {tried} tries"
            raise StorageError(masked(f"{what}: not delivered{tries} ({trouble})"))
        _log.info("%s: %s, again in %g s", what, masked(trouble), pause)
        patience.sleep(pause)


def _request(what: str, address: str, content: bytes, method: str, content_type: str) -> urllib.request.Request:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{what}: holds no address ({type(error).__name__}); need https://...") from error
    if parts.scheme not in ("http", "https") or not host or not address.isascii() or not address.isprintable() \
            or " " in address:
        raise ConfigError(f"{what}: holds no address; need https://... without blanks")
    headers = {"Content-Type": content_type, "User-Agent": "vsetune"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        remember(unquote(parts.password or ""), headers["Authorization"].removeprefix("Basic "))
    place = f"[{host}]" if ":" in host else host
    bare = urlunsplit((parts.scheme, f"{place}:{port}" if port else place, parts.path, parts.query, ""))
    return urllib.request.Request(bare, data=content, method=method, headers=headers)


def _tried_in_time(request: urllib.request.Request, timeout_s: float) -> tuple[str | None, bool]:
    """`_tried` with a limit of twice its timeout: a server that sends a byte now and then never times out."""
    try:
        return within(2 * timeout_s, lambda: _tried(request, timeout_s))
    except TimeoutError:
        return f"no whole answer within {2 * timeout_s:g} s", True


def _tried(request: urllib.request.Request, timeout_s: float) -> tuple[str | None, bool]:
    """The error, None on success, and whether a retry may succeed."""
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            answer.read(_MOST_READ)
    except urllib.error.HTTPError as error:
        with error:
            said = one_line(error.read(_MOST_READ).decode(errors="replace"), most=80) if error.fp else ""
        return f"answered {error.code}{f': {said}' if said else ''}", error.code in _LATER
    except TimeoutError:
        return f"no answer within {timeout_s:g} s", True
    except UnicodeError:  # the message of the host's encoder is too long
        return "its host can be no name", False
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            return f"no answer within {timeout_s:g} s", True
        return one_line(getattr(reason, "strerror", None) or reason, most=120), True
    return None, False
