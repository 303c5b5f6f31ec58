"""What to install for an address of a database whose driver is not there."""

from __future__ import annotations


def missing_driver(error: BaseException) -> str | None:
    """The package that an address needs and how to get it, if its absence is what made opening fail; else None."""
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
