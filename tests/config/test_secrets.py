"""Addresses with passwords are used as they are and shown without."""

from __future__ import annotations

import io
import logging
import threading
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vsetune.errors import ConfigError
from vsetune.home import addresses
from vsetune.home.addresses import (
    MaskedRecord,
    is_secret_variable,
    mask_output,
    masked,
    print_masked_traceback,
    remember,
    remember_environment,
    shown_plain,
    shown_url,
    usable_url,
)


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests teach the process must not be hidden from the output of others."""
    monkeypatch.setattr(addresses, "_known", set())
    monkeypatch.setattr(addresses, "_any_known", None)


passwords = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=6, max_size=20).filter(
    lambda text: not set("*${}") & set(text)
)


@pytest.mark.parametrize(("url", "shown"), [
    ("postgresql://ann:s3cr3t@host:5432/db", "postgresql://ann:***@host:5432/db"),
    ("postgresql+psycopg://ann:a@b@host/db", "postgresql+psycopg://ann:***@host/db"),
    ("postgresql://ann:a/b@host/db", "postgresql://ann:***@host/db"),
    ("postgresql://ann:a b@host/db", "postgresql://ann:***@host/db"),
    ("http://ann:a/b@host:5000", "http://ann:***@host:5000"),
    ("https://a-token@host/", "https://***@host/"),
    ("postgresql://host/db?user=ann&password=s3cr3t&sslmode=require",
     "postgresql://host/db?user=ann&password=***&sslmode=require"),
    ("sqlite:///file:x.db?uri=true&PassWord=a+b", "sqlite:///file:x.db?uri=true&PassWord=***"),
    ("mssql+pyodbc:///?odbc_connect=DRIVER%3Da%3BPWD%3Db", "mssql+pyodbc:///?odbc_connect=***"),
    ("postgresql://ann:a${PG_PASSWORD}@host/db", "postgresql://ann:***@host/db"),
])
def test_what_is_secret_in_an_address_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert shown_url(shown) == shown


@pytest.mark.parametrize("url", [
    "sqlite:////home/a b/c:d@e/mlflow.db", "postgresql://ann@host/db", "http://host:5000/path@x", "databricks",
    "s3://bucket/prefix", "postgresql://ann:${PG_PASSWORD}@host/db", "https://${TOKEN}@host/", "runs", "memory:",
    "mysql://host/db?token=${TOKEN}&charset=utf8",
])
def test_an_address_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert shown_url(url) == url
    assert masked(f"cannot open {url} (refused)") == f"cannot open {url} (refused)"


@settings(deadline=None, max_examples=30)
@given(passwords)
def test_no_password_is_seen_in_an_address_or_in_a_text_about_it(password: str) -> None:
    url = f"postgresql://ann:{quote(password, safe='')}@host/db"
    assert usable_url(url, where="tracking.uri") == url
    assert shown_url(url) == shown_url(f"postgresql://ann:{password}@host/db") == "postgresql://ann:***@host/db"
    told = f"connecting to {url} failed: FATAL: ann is not {password}"
    for form in (password, quote(password), quote(password, safe="")):
        assert form not in masked(told)


def test_only_the_secret_parts_of_a_text_are_masked() -> None:
    text = "GET http://ann:s3cr3t@host/api?page=2&access_token=abc for 'mysql://bob:x@h/d'; see http://h:80/a, b@c.org"
    assert masked(text) == (
        "GET http://ann:***@host/api?page=2&access_token=*** for 'mysql://bob:***@h/d'; see http://h:80/a, b@c.org"
    )


def test_stored_data_hold_no_password_however_deep_and_keep_everything_else() -> None:
    plain = {"tracking": {"uri": "http://ann:s3cr3t@host"}, "list": ["mysql://a:b@c/d", 3, None], "on": True}
    assert shown_plain(plain) == {
        "tracking": {"uri": "http://ann:***@host"}, "list": ["mysql://a:***@c/d", 3, None], "on": True,
    }


def test_a_variable_is_filled_in_and_quoted_only_where_a_url_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "host:5432/db")
    monkeypatch.setenv("PG_PASSWORD", "a/b@c%40")
    url = "postgresql://ann:${PG_PASSWORD}@${PLACE}?password=${PG_PASSWORD}"
    assert usable_url(url, where="it") == "postgresql://ann:a%2Fb%40c%2540@host:5432/db?password=a%2Fb%40c%2540"
    monkeypatch.setenv("WHOLE", "postgresql://ann:abc@host/db")
    assert usable_url("${WHOLE}", where="it") == "postgresql://ann:abc@host/db"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PG_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match=r"^tracking\.uri: got \$\{PG_PASSWORD\}, which is not set .*; export PG_PAS"):
        usable_url("postgresql://ann:${PG_PASSWORD}@host/db", where="tracking.uri")


@pytest.mark.parametrize("url", [
    "postgresql://ann:s3cr3t@host/db", "https://a-token@host/", "mysql://host/db?password=s3cr3t&charset=utf8",
])
def test_what_was_masked_is_refused_as_an_address(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^tracking\.uri: got .*\*\*\*.* masked when it was stored; use the study"):
        usable_url(shown_url(url), where="tracking.uri")


@pytest.mark.parametrize("password", ["a@bcdef", "a/bcdef", "a?bcdef", "a#bcdef", "a bcdef"])
def test_a_password_that_reads_two_ways_is_refused_without_showing_it(password: str) -> None:
    with pytest.raises(ConfigError, match=r"could end in two places; write @") as refused:
        usable_url(f"postgresql://ann:{password}@host/db", where="tracking.uri")
    assert password[2:] not in str(refused.value)


def test_variables_are_known_as_secret_by_their_names() -> None:
    secret = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "HF_TOKEN", "MYSQL_PWD")
    plain = ("PWD", "OLDPWD", "RAY_AUTH_TOKEN_PATH", "AWS_PROFILE", "VSETUNE_HOME", "TOKENIZERS_PARALLELISM", "KEYMAP")
    assert [name for name in (*secret, *plain) if is_secret_variable(name)] == list(secret)


def test_secrets_of_the_environment_are_masked_in_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "kEy+of/env")
    monkeypatch.setenv("HTTPS_PROXY", "http://ann:pRoxy%2Fword@host:3128")
    remember_environment()
    assert masked("sent kEy+of/env, kEy%2Bof/env and a0V5K29mL2Vudg==") == "sent ***, *** and ***=="
    assert masked("407 for pRoxy/word") == "407 for ***"


def test_a_log_record_is_masked_for_every_handler_traceback_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    factory = logging.getLogRecordFactory()
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    foreign = logging.getLogger("a.library.with.its.own.handler")
    foreign.addHandler(handler)
    foreign.propagate = False
    try:
        mask_output()
        remember("l0gged-word")
        assert logging.getLogRecordFactory() is MaskedRecord
        foreign.warning("retry %s", "http://ann:s3cr3t@host")
        try:
            raise OSError("http://ann:s3cr3t@host and l0gged-word")
        except OSError:
            foreign.exception("failed")
    finally:
        logging.setLogRecordFactory(factory)
        foreign.removeHandler(handler)
    told = lines.getvalue()
    assert "retry http://ann:***@host" in told
    assert "OSError: http://ann:***@host and ***" in told
    assert "s3cr3t" not in told


def test_a_traceback_is_printed_in_full_but_masked(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("http://ann:s3cr3t@host")
    except RuntimeError as error:
        print_masked_traceback(error)
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):")
    assert told.endswith("RuntimeError: http://ann:***@host\n")
