"use strict";
// The state of the page, stored in its address: #sort=loss.descending&loss=lmh&loss=lseh&over=best&runs=shown
// Each of several boards has its own order: #sort.flickr8k=best_m_recall.descending
const FILTERS = ["data", "network", "loss", "study", "tag"];

const page = {
  parsed: null,
  listeners: [],
  sorts: {}, // by the id of a board {column, direction: "ascending" | "descending"}, null: by comparison
  chosen: Object.fromEntries(FILTERS.map((name) => [name, new Set()])),
  over: "target",
  near: false, // axes of M-Recall: only what is near the best
  runs: { shown: false, status: "", search: "", sort: null },

  /** The data of the page, parsed on first use. */
  get data() {
    this.parsed ??= JSON.parse(document.getElementById("board-data").textContent);
    return this.parsed;
  },

  isFiltered() {
    return FILTERS.some((name) => this.chosen[name].size > 0);
  },

  /** Whether a row passes all filters; any chosen value of a filter matches. */
  shows(key) {
    if (!this.isFiltered()) return true;
    const row = this.data.rows[key];
    return row !== undefined && FILTERS.every((name) => {
      const wanted = this.chosen[name];
      return wanted.size === 0 || [row[name]].flat().some((value) => wanted.has(value));
    });
  },

  readAddress() {
    const words = new URLSearchParams(location.hash.slice(1));
    const sorted = (text) => {
      const [, column, direction] = /^(\w+)\.(ascending|descending)$/.exec(text ?? "") ?? [];
      return column ? { column, direction } : null;
    };
    this.sorts = Object.fromEntries([...words].flatMap(([name, text]) => {
      const [, , id] = /^sort(\.(.+))?$/.exec(name) ?? [];
      return /^sort(\.|$)/.test(name) ? [[id ?? "", sorted(text)]] : [];
    }));
    for (const name of FILTERS) this.chosen[name] = new Set(words.getAll(name));
    this.over = words.get("over") ?? "target";
    this.near = words.get("curves") === "near-the-best";
    this.runs = {
      shown: words.get("runs") === "shown", status: words.get("status") ?? "", search: words.get("trial") ?? "",
      sort: sorted(words.get("runs-sort")),
    };
  },

  writeAddress() {
    const words = new URLSearchParams();
    const add = (name, sort) => { if (sort) words.append(name, `${sort.column}.${sort.direction}`); };
    for (const [id, sort] of Object.entries(this.sorts)) add(id ? `sort.${id}` : "sort", sort);
    for (const name of FILTERS) this.chosen[name].forEach((value) => words.append(name, value));
    if (this.over !== "target") words.append("over", this.over);
    if (this.near) words.append("curves", "near-the-best");
    if (this.runs.shown) words.append("runs", "shown");
    if (this.runs.status) words.append("status", this.runs.status);
    if (this.runs.search) words.append("trial", this.runs.search);
    add("runs-sort", this.runs.sort);
    const text = words.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  },

  /** Call after any change of the state above. */
  changed() {
    this.writeAddress();
    this.show();
  },

  show() {
    this.listeners.forEach((listener) => listener());
  },
};

/** An element with attributes and children; text is never parsed as markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The next order of a column: ascending, descending, unsorted. */
function nextSort(sort, column) {
  if (sort?.column !== column) return { column, direction: "ascending" };
  return sort.direction === "ascending" ? { column, direction: "descending" } : null;
}

/** Rows sorted by a key of text or number; rows without one are last in either direction. */
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
