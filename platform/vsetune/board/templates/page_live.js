// A served page requests its board again and replaces the parts that changed. Filters, sort, scroll position and focus stay.
const PAUSE_MS = 2000;

const live = {
  sign: document.getElementById("live"),
  markup: {}, // of every part, as it came last
  tag: document.getElementById("live")?.dataset.tag,

  say(text, isOff) {
    if (this.sign.textContent !== text) this.sign.textContent = text;
    this.sign.classList.toggle("off", isOff);
  },

  async ask() {
    if (document.hidden) return;
    let answer;
    try {
      answer = await fetch(this.sign.dataset.updates, { headers: { "If-None-Match": this.tag }, cache: "no-store" });
    } catch {
      this.say("not reached: is vsetune serve running?", true);
      return;
    }
    if (answer.status === 304) {
      this.say("live", false);
    } else if (answer.ok) {
      this.tag = answer.headers.get("ETag");
      const { parts, data } = await answer.json();
      this.apply(parts, data);
      this.say("live", false);
    } else {
      this.say(`no answer to use: ${(await answer.text()).slice(0, 200)}`, true);
    }
  },

  apply(parts, data) {
    const before = this.words();
    const focus = this.focused();
    page.parsed = data;
    if (this.markup.boards !== parts.boards) this.markup = {}; // places of other parts stand in it
    for (const [name, markup] of Object.entries(parts)) {
      if (this.markup[name] === markup) continue;
      this.markup[name] = markup;
      document.querySelector(`[data-part="${name}"]`).innerHTML = markup;
    }
    board.read();
    runs.all = null;
    page.show();
    if (focus !== null) document.querySelector(focus)?.focus({ preventScroll: true });
    this.mark(before);
  },

  /** A selector of the focused element, to find it again after an update. */
  focused() {
    const at = document.activeElement;
    const quoted = (value) => `"${CSS.escape(value)}"`;
    if (at?.dataset?.filter) return `[data-filter=${quoted(at.dataset.filter)}][data-value=${quoted(at.dataset.value)}]`;
    const head = at?.closest?.("th[data-column]");
    if (head) return `table[data-board=${quoted(head.closest("table").dataset.board)}] th[data-column=${quoted(head.dataset.column)}] button`;
    if (at?.dataset?.runsColumn) return `[data-runs-column=${quoted(at.dataset.runsColumn)}]`;
    return at?.matches?.("a[href]") && at.closest("#runs") ? `#runs a[href=${quoted(at.getAttribute("href"))}]` : null;
  },

  rows() {
    return board.tables.flatMap(({ table }) => [...table.tBodies[0].rows]);
  },

  words() {
    return new Map(this.rows().map((row) => [row.dataset.key, [...row.cells].map((cell) => cell.textContent)]));
  },

  /** Highlights changed cells for a moment. */
  mark(before) {
    for (const row of this.rows()) {
      const old = before.get(row.dataset.key);
      [...row.cells].forEach((cell, at) => {
        if (old?.[at] !== cell.textContent) cell.classList.add("changed");
      });
    }
  },

  start() {
    if (!this.sign) return;
    const again = async () => {
      await this.ask();
      setTimeout(again, PAUSE_MS);
    };
    setTimeout(again, PAUSE_MS);
    document.getElementById("boards")?.addEventListener("change", (event) => location.assign(event.target.value));
  },
};
