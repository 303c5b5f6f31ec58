"""Local paths and `s3://bucket/key` addresses; passwords in addresses are never shown."""

from __future__ import annotations

import base64
import logging
import os
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from vsetune.errors import ConfigError, DataError, one_line

_S3 = "s3://"
_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}


def is_remote(url: str) -> bool:
    """True for `s3://` addresses. DataError for any other scheme; paths have none."""
    if url.startswith(_S3):
        return True
    if "://" in url or url.startswith("pipe:"):
        raise DataError(
            "VSE-O001", "{url}: unknown kind of address, need a local path or s3://bucket/prefix.", url=one_line(url)
        )
    return False


def join(url: str, name: str) -> str:
    """Address of a file inside a folder or prefix."""
    if is_remote(url):
        return f"{url.rstrip('/')}/{name}"
    return str(Path(url) / name)


def has_controls(name: str) -> bool:
    """Whether the name of a file has control characters, line separators or halves of surrogate pairs. Blanks and
    formatting characters of any script are none of them: names have them."""
    return not name.isprintable() and any(unicodedata.category(sign) in _CONTROLS for sign in name)


def bucket_and_key(url: str) -> tuple[str, str]:
    """Bucket and key of an `s3://` address. DataError when one is missing, or the address contains a password."""
    if shown_url(url) != url:
        raise DataError(
            "VSE-O004", "{where}: keys do not belong in the address; need s3://bucket/prefix, and AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, a profile or a role.", where=shown_url(url),
        )
    bucket, _, key = url.removeprefix(_S3).partition("/")
    if not bucket or not key:
        raise DataError("VSE-O002", "{url}: need s3://bucket/prefix.", url=url)
    return bucket, key


MASK = "***"
_SHORTEST_KNOWN = 6  # masking "root" everywhere would hide more than it protects

_SCHEME = r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LENGTH = "{0,4000}"  # of a password; tokens of clouds are that long, and a search through a long text must end
_HARMLESS = r"(?!\*\*\*@|\$\{\w+\}@)"  # masked already, or a variable: neither is a password
_SECRET_KEY = (
    r"(?:[\w.-]{0,40}(?:password|passwd|pwd|secret|token|credential|signature|api_?key|access_?key|account_?key|private_?key)"
    r"[\w.-]{0,40}|sig|key|pass|odbc_connect)"
)
_SECRET_VARIABLE = re.compile(
    r"(?:PASSWORD|PASSWD|PASSPHRASE|_PWD|SECRET|TOKEN|API_?KEY|(?:ACCESS|ACCOUNT|PRIVATE|SECRET)_KEY(?:_ID)?)$",
    re.IGNORECASE,
)
_MASKED = re.compile(r"://(?:[^/?#@]*:)?\*\*\*@|[?&;][^=&;]+=\*\*\*(?=[&;#]|$)")


def _patterns(outside: str) -> list[tuple[re.Pattern[str], str]]:
    """(pattern, replacement) pairs. outside: characters that no URL contains, as in a regular expression."""
    user = rf"[^:/?#@{outside}]*"
    return [
        # user:password@, up to the last @: people write @ / ? # bare, and SQLAlchemy accepts some of them
        (re.compile(rf"((?!https?:){_SCHEME}{user}):{_HARMLESS}[^{outside}]{_LENGTH}@"), rf"\1:{MASK}@"),
        # the same, but not the port of a web address and then a path with an @
        (re.compile(rf"(https?://{user}):{_HARMLESS}(?!\d{{1,5}}[/?#])[^{outside}]{_LENGTH}@"), rf"\1:{MASK}@"),
        (re.compile(rf"(https?://){_HARMLESS}[^:/?#@{outside}]+@"), rf"\1{MASK}@"),  # a token alone
        (re.compile(rf"([?&;\s]{_SECRET_KEY}=)(?!\*\*\*|\$\{{\w+\}})[^&;#{outside}]+", re.IGNORECASE), rf"\1{MASK}"),
    ]


_IN_TEXT, _WHOLE = _patterns(r"\s\"<>"), _patterns(r"\0")
_known: set[str] = set()
_any_known: re.Pattern[str] | None = None


def shown_url(url: str) -> str:
    """The address as it may be shown and stored: passwords and secret query values as `***`, `${NAME}` unchanged."""
    return _replaced(url, _WHOLE if re.match(_SCHEME, url) else _IN_TEXT)


def shown_plain(plain: Any) -> Any:
    """Plain data as it may be stored: `shown_url` of every string in it, at any depth."""
    if isinstance(plain, str):
        return shown_url(plain)
    if isinstance(plain, Mapping):
        return {key: shown_plain(value) for key, value in plain.items()}
    return [shown_plain(value) for value in plain] if isinstance(plain, list) else plain


def masked(text: str) -> str:
    """Any text without the secret parts of URLs in it and without the secrets passed to `remember`."""
    if _any_known is not None:
        text = _any_known.sub(MASK, text)
    return _replaced(text, _IN_TEXT)


def usable_url(text: str, *, where: str) -> str:
    """The address with its `${NAME}` filled in from the environment; secrets in it are remembered.

    A variable is quoted where a URL requires it (user, password, query), so it contains the password unquoted. where:
    opens the ConfigError for a variable that is not set, an address that was masked, or an ambiguous password.
    """
    url = _expanded(text, where)
    if _MASKED.search(url):
        raise ConfigError(
            "VSE-O005", "{where}: got {url}, whose password was masked when it was stored; use the study file it came "
            "from, or write ${{VARIABLE}} in place of {mask}", where=where, url=shown_url(url), mask=MASK,
        )
    rest = url.partition("://")[2]
    user_info = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[0]
    password = _password_of(url)
    if re.search(r"[@\s]", user_info) or not user_info.endswith(password):
        raise ConfigError(
            "VSE-O006", "{where}: got {url}, whose password could end in two places; write @ / ? # and spaces in it as "
            "in URLs (@ is %40), or all of it as ${{VARIABLE}}", where=where, url=shown_url(url),
        )
    if password:
        remember(unquote(password), _in_base64(unquote(user_info)))  # the latter as HTTP sends it
    remember(*(unquote_plus(value) for value in re.findall(rf"[?&;]{_SECRET_KEY}=([^&;#]+)", url, re.IGNORECASE)))
    return url


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable of this name holds a secret: AWS_SECRET_ACCESS_KEY does, RAY_AUTH_TOKEN_PATH does
    not."""
    return _SECRET_VARIABLE.search(name) is not None


def remember(*secrets: str) -> None:
    """From now on `masked` hides these, also quoted for URLs and in base64; texts shorter than 6 characters stay
    visible."""
    global _any_known
    new = {form for secret in secrets if len(secret) >= _SHORTEST_KNOWN for form in _forms(secret)} - _known
    if new:
        _known.update(new)
        longest_first = sorted(_known, key=len, reverse=True)
        _any_known = re.compile("|".join(map(re.escape, longest_first)))


def remember_environment() -> None:
    """`remember` for variables that hold secrets by their name, and for the passwords of URLs in any variable."""
    remember(*(value for name, value in os.environ.items() if is_secret_variable(name)))
    remember(*(unquote(_password_of(value)) for value in os.environ.values() if "://" in value))


def _replaced(text: str, patterns: list[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in patterns:
        text = pattern.sub(replacement, text)
    return text


def _expanded(text: str, where: str) -> str:
    def value_of(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if not value:
            raise ConfigError(
                "VSE-O007", "{where}: got {found}, which is not set in the environment; export {variable}", where=where,
                found=match[0], variable=match[1],
            )
        return quote(value, safe="") if _must_be_quoted(text, match.start()) else value

    return _VARIABLE.sub(value_of, text)


def _must_be_quoted(url: str, position: int) -> bool:
    """Whether this is the user, the password or the query of the address. A host, a path or a whole address is not
    quoted."""
    scheme, found, rest = url.partition("://")
    if not found:
        return False
    start = len(scheme) + len(found)
    end_of_user = start + re.split(r"[/?#]", rest, maxsplit=1)[0].rfind("@")
    return start <= position < end_of_user or 0 <= url.find("?") < position


def _password_of(url: str) -> str:
    """The password that `shown_url` would hide before the host, still quoted; empty if there is none."""
    for pattern, _ in _WHOLE[:3]:
        match = pattern.match(url)
        if match:
            return url[match.end(1) : match.end() - 1].removeprefix(":")
    return ""


def _forms(secret: str) -> set[str]:
    return {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), _in_base64(secret)}


def _in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


class MaskedRecord(logging.LogRecord):
    """A log record whose message and traceback are `masked`.

    A filter would have to be added to every handler of every library; MLflow, Optuna and Ray bring their own.
    """

    def getMessage(self) -> str:  # noqa: N802  the name is logging's
        return masked(super().getMessage())

    def __setattr__(self, name: str, value: Any) -> None:
        """Mask also the traceback that formatters store in `exc_text` and print."""
        is_text = name in ("exc_text", "stack_info") and isinstance(value, str)
        super().__setattr__(name, masked(value) if is_text else value)


def mask_output() -> None:
    """Mask every log record and every traceback of a thread from now on, including secrets from the environment.

    The caller prints the main thread's traceback, with `print_masked_traceback`. Calling this twice does no harm.
    """
    remember_environment()
    logging.setLogRecordFactory(MaskedRecord)
    threading.excepthook = _of_a_thread


def print_masked_traceback(error: BaseException) -> None:
    """Write the traceback to stderr, as Python prints it but `masked`."""
    sys.stderr.write(masked("".join(traceback.format_exception(error))))


def _of_a_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        print_masked_traceback(args.exc_value)
