"""Writes the Grafana dashboards, the alert rules, the scrape configurations and the table of metrics from code.

    python dashboards/make.py          # needs the extra `dashboards`
"""

from __future__ import annotations

from pathlib import Path

from watching.files import files_of_grafana, files_of_prometheus

FOLDER = Path(__file__).parent


def main() -> None:
    """Write every file; version control shows the changes."""
    for path, text in (files_of_prometheus() | files_of_grafana()).items():
        file = FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"dashboards/{path}")


if __name__ == "__main__":
    main()
