// Saves the rows that are shown, in the order shown. The texts of rows come with the page.
const TYPES = { csv: "text/csv", json: "application/json", md: "text/markdown", tex: "text/x-tex" };

function savedText(kind) {
  const keys = board.shown().map((row) => row.dataset.key);
  if (kind === "json") {
    const rows = keys.map((key) => page.data.board.rows[page.data.keys.indexOf(key)]);
    return JSON.stringify({ ...page.data.board, rows }, null, 2);
  }
  const { head, before_group, lines, tail } = page.data.texts[kind];
  const parts = [head];
  let group = null;
  for (const key of keys) {
    if (rowOf(key).group !== group) parts.push(before_group);
    group = rowOf(key).group;
    parts.push(lines[key]);
  }
  return [...parts, tail].join("");
}

document.querySelector(".downloads").addEventListener("click", (event) => {
  const kind = event.target.closest("[data-save]")?.dataset.save;
  if (!kind) return;
  const address = URL.createObjectURL(new Blob([savedText(kind)], { type: TYPES[kind] }));
  const name = `${page.data.board.study.replace(/[^\w.-]+/g, "_")}.${kind}`;
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});
