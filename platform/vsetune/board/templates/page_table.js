// Sorts and filters the tables of rows in place; their markup comes from Python.
const board = {
  tables: [], // {id, table, original: rows as they came, titles: heads}; id: of one of several boards, else empty

  /** Reads the tables; call it again after their markup was replaced. */
  read() {
    this.tables = [...document.querySelectorAll("table.leaderboard")].map((table) => {
      const original = [...table.tBodies[0].rows];
      const titles = [...table.querySelectorAll("thead th")];
      const choices = titles.map((head, at) => new Option(original[0]?.cells[at].dataset.label ?? head.textContent, head.dataset.column));
      const tools = table.closest(".scroll").previousElementSibling;
      tools.querySelector("[data-sort-by]").replaceChildren(new Option("comparison", ""), ...choices);
      return { id: table.dataset.board, table, original, titles, tools };
    });
  },

  /** Visible rows in their order, board by board. */
  shown() {
    return this.tables.flatMap((each) => this.shownOf(each));
  },

  shownOf({ table }) {
    return [...table.tBodies[0].rows].filter((row) => !row.hidden);
  },

  show() {
    for (const each of this.tables) this.order(each);
    for (const row of document.querySelectorAll("#configurations tbody tr")) row.hidden = !page.shows(row.dataset.key);
    const all = this.tables.reduce((count, { original }) => count + original.length, 0);
    const text = page.isFiltered() ? `${this.shown().length} of ${all} rows` : `${all} rows`;
    const shown = document.getElementById("shown");
    if (shown.textContent !== text) shown.textContent = text;
    document.getElementById("show-all").hidden = !page.isFiltered();
    for (const button of document.querySelectorAll("[data-filter]")) {
      button.setAttribute("aria-pressed", String(page.chosen[button.dataset.filter].has(button.dataset.value)));
    }
  },

  order(each) {
    const { id, table, original, titles, tools } = each;
    const sort = page.sorts[id];
    const at = titles.findIndex((head) => head.dataset.column === sort?.column);
    const direction = at < 0 ? null : sort.direction;
    titles.forEach((head, place) => {
      if (place === at) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    const isNumber = titles[at]?.classList.contains("number");
    const key = (row) => {
      const text = row.cells[at].dataset.sort;
      return text === "" || !isNumber ? text : Number(text.replace("inf", "Infinity"));
    };
    const ordered = at < 0 ? original : sortedBy(original, key, isNumber, direction);
    table.classList.toggle("grouped", at < 0 && !page.isFiltered());
    if (ordered.some((row, place) => table.tBodies[0].rows[place] !== row)) table.tBodies[0].append(...ordered);
    for (const row of ordered) row.hidden = !page.shows(row.dataset.key);
    const section = table.closest("section.board");
    if (section) section.hidden = this.shownOf(each).length === 0;
    tools.querySelector("[data-sort-by]").value = at < 0 ? "" : titles[at].dataset.column;
    const turn = tools.querySelector("[data-sort-direction]");
    turn.hidden = at < 0;
    turn.textContent = direction === "descending" ? "▼ highest first" : "▲ lowest first";
  },

  /** The table that contains an element, or whose tools do. */
  of(element) {
    return this.tables.find(({ table, tools }) => table.contains(element) || tools.contains(element));
  },

  sort(id, sort) {
    page.sorts[id] = sort;
    page.changed();
  },

  start() {
    this.read();
    const tables = document.getElementById("tables");
    tables.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      const each = button && this.of(button);
      if (!each) return;
      const sort = page.sorts[each.id];
      if (button.matches("[data-sort-direction]")) {
        this.sort(each.id, { ...sort, direction: sort.direction === "ascending" ? "descending" : "ascending" });
      } else if (button.closest("thead th")) {
        this.sort(each.id, nextSort(sort, button.closest("th").dataset.column));
      }
    });
    tables.addEventListener("change", (event) => {
      if (!event.target.matches("[data-sort-by]")) return;
      const { id, titles } = this.of(event.target);
      const column = event.target.value;
      const isText = titles.find((head) => head.dataset.column === column)?.classList.contains("text");
      this.sort(id, column ? { column, direction: isText ? "ascending" : "descending" } : null);
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
