"""Questions to a Prometheus server over its HTTP API."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 30.0


class PrometheusError(Exception):
    """The server does not answer, or refuses a query."""


@dataclass(frozen=True)
class Curve:
    """One series. points: (Unix time in s, value), without those that are not finite."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Server:
    """url: `http://127.0.0.1:9090`. Proxies of the environment are not used, since such a server is near."""

    url: str

    def over_time(self, expr: str, *, start: float, end: float, step_s: float) -> list[Curve]:
        """The values of a query at every step from start to end (Unix time)."""
        found = self._ask("query_range", query=expr, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step_s:g}")
        return [Curve(one["metric"], _finite(one["values"])) for one in found["result"]]

    def at(self, expr: str, *, time: float) -> list[Curve]:
        """The values of a query at one time."""
        found = self._ask("query", query=expr, time=f"{time:.3f}")
        return [Curve(one["metric"], _finite([one["value"]])) for one in found["result"]]

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that are pending or firing."""
        return list(self._ask("alerts")["alerts"])

    def rules(self) -> list[dict[str, Any]]:
        """Every rule that the server has loaded."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        """Targets that the server scrapes, each with its `health`."""
        return list(self._ask("targets", state="active")["activeTargets"])

    def _ask(self, what: str, **parameters: str) -> Any:
        address = f"{self.url.rstrip('/')}/api/v1/{what}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{address}?{urllib.parse.urlencode(parameters)}", timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")[:200]
            raise PrometheusError(f"{address}: refused ({reason}); query: {parameters.get('query', 'none')}") from error
        except (OSError, ValueError, KeyError) as error:
            raise PrometheusError(
                f"{self.url}: no Prometheus answers there ({error}); start it with `make dashboards`, or name another "
                "with --url"
            ) from error


def _finite(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    points = [(float(time), float(value)) for time, value in values]
    return [(time, value) for time, value in points if math.isfinite(value)]
