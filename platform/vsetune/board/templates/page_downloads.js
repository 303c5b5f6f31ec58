// Saves the visible rows in their order, board by board. The page contains the text of every row.
const TYPES = { csv: "text/csv", json: "application/json", md: "text/markdown", tex: "text/x-tex" };

/** [index of the board on the page, keys of its visible rows], for every board with a visible row. */
function shownKeys() {
  const keys = board.tables.map((each, at) => [at, board.shownOf(each).map((row) => row.dataset.key)]);
  return keys.filter(([, of]) => of.length > 0);
}

function savedText(kind) {
  if (kind === "json") return JSON.stringify(savedData(), null, 2);
  const { head, between, tail, boards } = page.data.texts[kind];
  return head + shownKeys().map(([at, keys]) => textOfBoard(boards[at], keys)).join(between) + tail;
}

function textOfBoard({ head, before_group, lines, tail }, keys) {
  const parts = [head];
  let group = null;
  for (const key of keys) {
    if (rowOf(key).group !== group) parts.push(before_group);
    group = rowOf(key).group;
    parts.push(lines[key]);
  }
  return [...parts, tail].join("");
}

function savedData() {
  const boards = shownKeys().map(([at, wanted]) => {
    const { board: whole, keys } = page.data.boards[at];
    return { ...whole, rows: wanted.map((key) => whole.rows[keys.indexOf(key)]) };
  });
  return page.data.across === null ? boards[0] ?? { ...page.data.boards[0].board, rows: [] } : { boards, ...page.data.across };
}

document.querySelector(".downloads").addEventListener("click", (event) => {
  const kind = event.target.closest("[data-save]")?.dataset.save;
  if (!kind) return;
  const address = URL.createObjectURL(new Blob([savedText(kind)], { type: TYPES[kind] }));
  const name = `${page.data.title.replace(/[^\w.-]+/g, "_")}.${kind}`;
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
});
