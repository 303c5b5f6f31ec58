"""`make dashboards`: Prometheus on this machine, reading every study that runs here, and files ready for Grafana."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from watching.laptop import NO_PROMETHEUS, command, sessions_of_ray, where_to_look, write_files


def main(arguments: list[str] | None = None) -> None:
    """Exit with 1 if Prometheus is not installed; otherwise replace this process by Prometheus."""
    parser = argparse.ArgumentParser(description="Prometheus on this machine, and files ready for Grafana.")
    parser.add_argument("--port", type=int, default=9090, help="of Prometheus, on 127.0.0.1")
    parser.add_argument(
        "--temp-dir", type=Path, default=sessions_of_ray(), help="that of `ray start --head`, if it was given one"
    )
    given = parser.parse_args(arguments)
    url = f"http://127.0.0.1:{given.port}"
    files = write_files(url, given.temp_dir)
    binary = shutil.which("prometheus")
    if binary is None:
        sys.exit(NO_PROMETHEUS)
    print(where_to_look(url, files, given.temp_dir), flush=True)
    os.execv(binary, command(binary, files, port=given.port))


if __name__ == "__main__":
    main()
