"""Installation advice for a database address whose driver is not installed."""

from __future__ import annotations


def missing_driver(error: BaseException) -> str | None:
    """The missing package and how to install it, if its absence made opening the address fail; else None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ModuleNotFoundError):
        cause = cause.__cause__
    if cause is None or cause.name is None:
        return None
    package = cause.name.partition(".")[0]
    how = "run: pip install 'vsetune[postgres]'" if package.startswith("psycopg") else (
        "install it, or name another driver in the address, as in mysql+pymysql://"
    )
    return f"needs the package {package}, which is not installed; {how}"
