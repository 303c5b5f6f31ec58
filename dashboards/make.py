"""Writes the Grafana dashboards, the alert rules, the scrape configurations and the docs' table of metrics from code.

    python dashboards/make.py          # needs the extra `dashboards`
"""

from __future__ import annotations

import re
from pathlib import Path

from watching.files import files_of_grafana, files_of_prometheus, table_of_metrics

FOLDER = Path(__file__).parent
_TABLE = re.compile(r"\| metric \| kind \|.*?(?=\n\n|\Z)", re.DOTALL)


def main() -> None:
    """Write every file; version control shows the changes."""
    for path, text in (files_of_prometheus() | files_of_grafana()).items():
        file = FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"dashboards/{path}")
    page = FOLDER.parent / "docs" / "dashboards.md"
    if page.exists():
        text = page.read_text(encoding="utf-8")
        page.write_text(_TABLE.sub(lambda _: table_of_metrics(), text, count=1), encoding="utf-8")
        print("docs/dashboards.md")


if __name__ == "__main__":
    main()
