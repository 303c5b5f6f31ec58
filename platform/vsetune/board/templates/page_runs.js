// The table of all attempts, a hundred rows at a time, since there may be ten thousand.
const RUNS_AT_ONCE = 100;
const STUDY = ["study", (run) => page.data.runs.studies[run.study]];
const RUN_COLUMNS = [
  // title, column of the data or a function of a run, digits of a number
  ["network", (run) => rowOf(run.key)?.network ?? run.key.split("\t")[1]], ["loss", (run) => rowOf(run.key)?.loss ?? run.key.split("\t")[2]],
  ["trial", "trial"], ["attempt", "number", 0], ["seed", "seed", 0], ["phase", "phase"], ["status", "status"],
  ["best M-Recall", "best_m_recall", 1], ["at epoch", "epochs_to_best", 2], ["epochs", "epochs", 2],
  ["device-seconds", "device_seconds", 0], ["why", "error"],
];

const runs = {
  section: document.getElementById("runs"),
  all: null,
  columns: RUN_COLUMNS,
  most: RUNS_AT_ONCE,

  /** Reads the runs as objects, once after each update. */
  read() {
    const { columns, runs: rows, studies } = page.data.runs;
    this.columns = studies.length > 1 ? [STUDY, ...RUN_COLUMNS] : RUN_COLUMNS;
    this.all = rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at]])));
    const statuses = [...new Set(this.all.map(({ status }) => status))].sort();
    const choice = document.getElementById("runs-status");
    choice.replaceChildren(new Option("all", ""), ...statuses.map((status) => new Option(status, status)));
    document.getElementById("runs-count").textContent = `all ${this.all.length.toLocaleString("en")}`;
  },

  value(run, column) {
    return typeof column === "function" ? column(run) : run[column];
  },

  chosen() {
    const { status, search, sort } = page.runs;
    const found = this.all.filter((run) => page.shows(run.key) && (!status || run.status === status) && run.trial.includes(search));
    const at = this.columns.findIndex(([title]) => title.replace(/\W/g, "_") === sort?.column);
    if (at < 0) return found;
    const [, column, digits] = this.columns[at];
    return sortedBy(found, (run) => this.value(run, column), digits !== undefined, sort.direction);
  },

  show() {
    const list = document.getElementById("runs-list");
    if (list.open !== page.runs.shown) list.open = page.runs.shown;
    if (!page.runs.shown) return;
    if (this.all === null) this.read();
    document.getElementById("runs-status").value = page.runs.status;
    const search = document.getElementById("runs-search");
    if (search.value !== page.runs.search) search.value = page.runs.search;
    const found = this.chosen();
    const table = this.section.querySelector("table");
    table.tHead.replaceChildren(this.heads());
    table.tBodies[0].replaceChildren(...found.slice(0, this.most).map((run) => this.line(run)));
    const more = document.getElementById("runs-more");
    more.hidden = found.length <= this.most;
    document.getElementById("runs-shown").textContent =
      `${Math.min(this.most, found.length).toLocaleString("en")} of ${found.length.toLocaleString("en")}`;
  },

  heads() {
    const line = element("tr", { role: "row" });
    for (const [title, , digits] of this.columns) {
      const column = title.replace(/\W/g, "_");
      const button = element("button", { type: "button", "data-runs-column": column }, title);
      const sort = page.runs.sort?.column === column ? page.runs.sort.direction : null;
      line.append(element("th", { role: "columnheader", scope: "col", class: digits === undefined ? "text" : "number", "aria-sort": sort }, button));
    }
    line.append(element("th", { role: "columnheader", scope: "col", class: "text" }, "see"));
    return line;
  },

  line(run) {
    const line = element("tr", { role: "row" });
    for (const [title, column, digits] of this.columns) {
      const value = this.value(run, column);
      const text = value === null || value === undefined ? "–" : digits === undefined ? value : number(value, digits);
      line.append(element("td", { role: "cell", "data-label": title, class: (digits === undefined ? "text" : "number") + (text === "–" ? " none" : "") }, text));
    }
    line.append(element("td", { role: "cell", "data-label": "see", class: "text" }, ...this.links(run)));
    return line;
  },

  /** Links to the run in MLflow and to its galleries, if there are any. */
  links(run) {
    const { links, studies, galleries } = page.data.runs;
    const inMlflow = links[run.study];
    const isServed = document.getElementById("live") !== null;
    const link = (address, text) => element("a", { href: address, rel: "noreferrer" }, text);
    const shown = (galleries[`${studies[run.study]}/${run.trial}/${run.number}`] ?? []).map((name) => {
      const text = `gallery ${name.split("/").pop()}`;
      const place = [studies[run.study], "artifacts", run.trial, run.number, ...name.split("/")];
      return isServed ? link(`/studies/${place.map(encodeURIComponent).join("/")}`, text) : text;
    });
    const isThere = inMlflow !== null && run.run !== null;
    return [...(isThere ? [link(inMlflow.run.replace("{run}", run.run), "MLflow")] : []), ...shown]
      .flatMap((each, at) => (at ? [", ", each] : [each]));
  },

  start() {
    if (!this.section) return;
    this.section.hidden = false;
    document.getElementById("runs-count").textContent = "them";
    const { links, studies } = page.data.runs;
    const link = (href, words) => [" ", element("a", { href, rel: "noreferrer" }, words)];
    const charts = links.flatMap((each, at) => (each === null ? [] : [
      ...link(each.charts, `Charts of ${studies[at]} in MLflow.`),
      ...Object.entries(each.means ?? {}).flatMap(([network, href]) => link(href, `Mean curves of ${network}.`)),
    ]));
    document.getElementById("runs-charts").append(...charts);
    document.getElementById("runs-list").addEventListener("toggle", (event) => {
      if (event.target.open === page.runs.shown) return;
      page.runs.shown = event.target.open;
      page.changed();
    });
    document.getElementById("runs-status").addEventListener("change", (event) => {
      page.runs.status = event.target.value;
      page.changed();
    });
    document.getElementById("runs-search").addEventListener("input", (event) => {
      page.runs.search = event.target.value;
      page.changed();
    });
    document.getElementById("runs-more").addEventListener("click", () => {
      this.most += RUNS_AT_ONCE;
      this.show();
    });
    this.section.querySelector("thead").addEventListener("click", (event) => {
      const button = event.target.closest("[data-runs-column]");
      if (!button) return;
      page.runs.sort = nextSort(page.runs.sort, button.dataset.runsColumn);
      page.changed();
      this.section.querySelector(`[data-runs-column="${button.dataset.runsColumn}"]`).focus();
    });
    page.listeners.push(() => this.show());
  },
};
