"use strict";
// What is shown, kept in the address: #sort=loss.descending&loss=lmh&loss=lseh&over=best&runs=shown
// Of several boards each has its own order: #sort.flickr8k=best_m_recall.descending
const FILTERS = ["data", "network", "loss", "study", "tag"];

const page = {
  parsed: null,
  listeners: [],
  sorts: {}, // by the id of a board {column, direction: "ascending" | "descending"}, null: by comparison
  chosen: Object.fromEntries(FILTERS.map((name) => [name, new Set()])),
  over: "target",
  near: false, // axes of M-Recall: only what is near the best
  runs: { shown: false, status: "", search: "", sort: null },

  /** The data of the page, read when they are first asked for. */
  get data() {
    this.parsed ??= JSON.parse(document.getElementById("board-data").textContent);
    return this.parsed;
  },

  isFiltered() {
    return FILTERS.some((name) => this.chosen[name].size > 0);
  },

  /** Whether a row passes all filters; of one filter, any of its values will do. */
  shows(key) {
    if (!this.isFiltered()) return true;
    const row = this.data.rows[key];
    return row !== undefined && FILTERS.every((name) => {
      const wanted = this.chosen[name];
      return wanted.size === 0 || [row[name]].flat().some((value) => wanted.has(value));
    });
  },

  readAddress() {
    const told = new URLSearchParams(location.hash.slice(1));
    const sorted = (text) => {
      const [, column, direction] = /^(\w+)\.(ascending|descending)$/.exec(text ?? "") ?? [];
      return column ? { column, direction } : null;
    };
    this.sorts = Object.fromEntries([...told].flatMap(([name, text]) => {
      const [, , id] = /^sort(\.(.+))?$/.exec(name) ?? [];
      return /^sort(\.|$)/.test(name) ? [[id ?? "", sorted(text)]] : [];
    }));
    for (const name of FILTERS) this.chosen[name] = new Set(told.getAll(name));
    this.over = told.get("over") ?? "target";
    this.near = told.get("curves") === "near-the-best";
    this.runs = {
      shown: told.get("runs") === "shown", status: told.get("status") ?? "", search: told.get("trial") ?? "",
      sort: sorted(told.get("runs-sort")),
    };
  },

  writeAddress() {
    const told = new URLSearchParams();
    const add = (name, sort) => { if (sort) told.append(name, `${sort.column}.${sort.direction}`); };
    for (const [id, sort] of Object.entries(this.sorts)) add(id ? `sort.${id}` : "sort", sort);
    for (const name of FILTERS) this.chosen[name].forEach((value) => told.append(name, value));
    if (this.over !== "target") told.append("over", this.over);
    if (this.near) told.append("curves", "near-the-best");
    if (this.runs.shown) told.append("runs", "shown");
    if (this.runs.status) told.append("status", this.runs.status);
    if (this.runs.search) told.append("trial", this.runs.search);
    add("runs-sort", this.runs.sort);
    const text = told.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  },

  /** Called by whoever changed something above. */
  changed() {
    this.writeAddress();
    this.show();
  },

  show() {
    this.listeners.forEach((listener) => listener());
  },
};

/** An element with attributes and children, text among them; what people wrote is text and never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** What comes after what is sorted by now: ascending, descending, as it was. */
function nextSort(sort, column) {
  if (sort?.column !== column) return { column, direction: "ascending" };
  return sort.direction === "ascending" ? { column, direction: "descending" } : null;
}

/** Rows by a key of text or number; those without one come last whichever way. */
function sortedBy(rows, keyOf, isNumber, direction) {
  const sign = direction === "descending" ? -1 : 1;
  const keyed = rows.map((row) => [keyOf(row), row]);
  keyed.sort(([a], [b]) => {
    const [none, other] = [a === null || a === "", b === null || b === ""];
    if (none || other) return Number(none) - Number(other);
    return sign * (isNumber ? a - b : String(a).localeCompare(String(b)));
  });
  return keyed.map(([, row]) => row);
}
