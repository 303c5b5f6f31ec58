// The table of rows: sorted and filtered in place, the markup is the server's.
const board = {
  table: document.getElementById("leaderboard"),
  original: [],
  titles: [],

  /** Again after its markup was replaced. */
  read() {
    this.original = [...this.table.tBodies[0].rows];
    this.titles = [...this.table.querySelectorAll("thead th")];
    const choices = this.titles.map((head, at) => new Option(
      this.original[0]?.cells[at].dataset.label ?? head.textContent, head.dataset.column));
    document.getElementById("sort-by").replaceChildren(new Option("comparison", ""), ...choices);
  },

  /** Rows that pass the filters, in the order in which they stand. */
  shown() {
    return [...this.table.tBodies[0].rows].filter((row) => !row.hidden);
  },

  show() {
    const at = this.titles.findIndex((head) => head.dataset.column === page.sort?.column);
    const direction = at < 0 ? null : page.sort.direction;
    this.titles.forEach((head, place) => {
      if (place === at) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const isNumber = this.titles[at]?.classList.contains("number");
    const key = (row) => {
      const text = row.cells[at].dataset.sort;
      return text === "" || !isNumber ? text : Number(text.replace("inf", "Infinity"));
    };
    const ordered = at < 0 ? this.original : sortedBy(this.original, key, isNumber, direction);
    this.table.classList.toggle("grouped", at < 0 && !page.isFiltered());
    if (ordered.some((row, place) => this.table.tBodies[0].rows[place] !== row)) {
      this.table.tBodies[0].append(...ordered);
    }
    for (const row of ordered) row.hidden = !page.shows(row.dataset.key);
    for (const row of document.querySelectorAll("#configurations tbody tr")) row.hidden = !page.shows(row.dataset.key);
    this.tell(at < 0 ? "" : this.titles[at].dataset.column, direction);
  },

  tell(column, direction) {
    const count = this.shown().length;
    const text = page.isFiltered() ? `${count} of ${this.original.length} rows` : `${count} rows`;
    const shown = document.getElementById("shown");
    if (shown.textContent !== text) shown.textContent = text;
    document.getElementById("show-all").hidden = !page.isFiltered();
    document.getElementById("sort-by").value = column;
    document.getElementById("sort-direction").hidden = !column;
    document.getElementById("sort-direction").textContent = direction === "descending" ? "▼ highest first" : "▲ lowest first";
    for (const button of document.querySelectorAll("[data-filter]")) {
      button.setAttribute("aria-pressed", String(page.chosen[button.dataset.filter].has(button.dataset.value)));
    }
  },

  start() {
    this.read();
    this.table.addEventListener("click", (event) => {
      const head = event.target.closest("thead th");
      if (!head || !event.target.closest("button")) return;
      page.sort = nextSort(page.sort, head.dataset.column);
      page.changed();
    });
    document.getElementById("sort-by").addEventListener("change", (event) => {
      const column = event.target.value;
      const isText = this.titles.find((head) => head.dataset.column === column)?.classList.contains("text");
      page.sort = column ? { column, direction: isText ? "ascending" : "descending" } : null;
      page.changed();
    });
    document.getElementById("sort-direction").addEventListener("click", () => {
      page.sort.direction = page.sort.direction === "ascending" ? "descending" : "ascending";
      page.changed();
    });
    document.getElementById("show-all").addEventListener("click", () => {
      for (const name of FILTERS) page.chosen[name].clear();
      page.changed();
      document.querySelector("[data-filter]")?.focus();
    });
    document.querySelector("[data-part=filters]").addEventListener("click", (event) => {
      const button = event.target.closest("[data-filter]");
      if (!button) return;
      const chosen = page.chosen[button.dataset.filter];
      if (!chosen.delete(button.dataset.value)) chosen.add(button.dataset.value);
      page.changed();
    });
    page.listeners.push(() => this.show());
  },
};
