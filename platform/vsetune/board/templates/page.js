// Starts the other scripts, and draws the figures of each section.
const sections = {
  made: new Map(), // id of a figure: its element
  watcher: new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => {
    target.isInView = isIntersecting;
    if (isIntersecting) sections.draw(target);
  }), { rootMargin: "200px" }),

  /** Figures of every section; they are drawn when they come into view. */
  show() {
    for (const section of document.querySelectorAll("[data-charts]")) {
      const name = section.dataset.charts;
      const wanted = figures[name]();
      const panels = section.querySelector(".panels");
      const notes = wanted.length ? page.data.charts[name]?.notes ?? [] : [];
      section.querySelector(".chart-notes")?.replaceChildren(...notes.map((note) => element("li", {}, note)));
      const kept = wanted.map((figure) => this.figure(`${name}\t${figure.id}`, figure));
      for (const old of [...panels.children]) if (!kept.includes(old)) { this.watcher.unobserve(old); old.remove(); }
      kept.forEach((figure, at) => { if (panels.children[at] !== figure) panels.insertBefore(figure, panels.children[at] ?? null); });
      section.hidden = wanted.length === 0 && !(name === "heights" && page.data.charts.heights.points.length);
    }
  },

  figure(id, model) {
    if (!this.made.has(id)) {
      const [strong, rest] = model.title;
      const plot = element("div", { class: "plot", role: "img" });
      const numbers = element("details", { class: "numbers" }, element("summary", {}, "Numbers"));
      numbers.addEventListener("toggle", () => this.listNumbers(made));
      const made = element("figure", {}, element("figcaption", {}, element("span", {}, element("strong", {}, strong), rest), element("span", { class: "aside" }, model.aside)), plot, numbers);
      this.made.set(id, made);
      this.watcher.observe(made);
    }
    const made = this.made.get(id);
    if (!made.isConnected) this.watcher.observe(made);
    made.querySelector(".plot").setAttribute("aria-label", model.words);
    made.querySelector(".aside").textContent = model.aside;
    made.model = model;
    if (made.isInView) this.draw(made);
    this.listNumbers(made);
    return made;
  },

  /** Draws the figure again if its specification has changed. */
  draw(figure) {
    const spec = figure.model.spec();
    const asText = JSON.stringify(spec);
    if (figure.asText === asText) return;
    figure.asText = asText;
    return drawing.draw(figure.querySelector(".plot"), spec);
  },

  /** Draws the figures that nobody has scrolled to, one after the other while the browser is idle: paper shows them all. */
  drawRest() {
    const next = [...this.made.values()].find((figure) => figure.isConnected && !figure.asText);
    if (next) (window.requestIdleCallback ?? setTimeout)(() => Promise.resolve(this.draw(next)).then(() => this.drawRest()));
  },

  /** Fills in the table of a figure's numbers if it is open. */
  listNumbers(figure) {
    const place = figure.querySelector("details");
    place.querySelector(".scroll")?.remove();
    if (!place.open) return;
    const { heads, rows } = figure.model.numbers();
    const side = (at, text) => (at === 0 || !/^[−\d–]/.test(text) ? "text" : "number");
    const head = element("tr", {}, ...heads.map((text, at) => element("th", { scope: "col", class: side(at, rows[0]?.[at] ?? "") }, text)));
    const lines = rows.map((row) => element("tr", {}, ...row.map((text, at) => element("td", { class: side(at, text) }, text))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
    place.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of the chart" }, table));
  },

  start() {
    const axes = document.getElementById("axis");
    if (!axes) return;
    const choices = Object.entries(page.data.charts.heights.axes).map(([name, title]) => new Option(title, name));
    axes.replaceChildren(...choices);
    axes.addEventListener("change", () => { page.over = axes.value; page.changed(); });
    const nears = document.querySelectorAll("[data-near]");
    for (const near of nears) near.addEventListener("change", () => { page.near = near.checked; page.changed(); });
    const show = () => {
      axes.value = page.over;
      for (const near of nears) near.checked = page.near;
      this.show();
    };
    page.listeners.push(show);
    show();
    this.drawRest();
  },
};

const theme = {
  button: document.getElementById("theme"),
  start() {
    const stored = (() => { try { return localStorage.getItem("vsetune-theme"); } catch { return null; } })();
    if (stored) document.documentElement.dataset.theme = stored;
    this.button.hidden = false;
    this.name();
    this.button.addEventListener("click", () => {
      const wanted = drawing.isDark() ? "light" : "dark";
      document.documentElement.dataset.theme = wanted;
      try { localStorage.setItem("vsetune-theme", wanted); } catch { /* a file may not store anything */ }
      this.name();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.name());
  },
  name() { this.button.textContent = drawing.isDark() ? "Light" : "Dark"; },
};

document.querySelector(".tools").hidden = false;
page.readAddress();
board.start();
runs.start();
theme.start();
page.show();
window.addEventListener("hashchange", () => {
  if (/^#[^=]+$/.test(location.hash)) return; // a place on the page, as the skip link names one
  page.readAddress();
  page.show();
});
live.start();
window.addEventListener("beforeprint", () => sections.made.forEach((figure) => figure.isConnected && sections.draw(figure)));
sections.start();
document.documentElement.dataset.ready = "yes";
