from __future__ import annotations

from s3_server import endpoint, prefix

__all__ = ["endpoint", "prefix"]
