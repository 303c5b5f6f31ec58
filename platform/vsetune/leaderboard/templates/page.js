"use strict";
(() => {
  const table = document.getElementById("leaderboard");
  const body = table.tBodies[0];
  table.classList.add("grouped");

  const compare = (a, b, numeric) => {
    if (!numeric) return a.localeCompare(b);
    return Number(a) - Number(b);
  };

  table.querySelectorAll("thead th").forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction);
      table.classList.remove("grouped");
      const numeric = head.classList.contains("number");
      const key = (row) => row.cells[column].dataset.sort;
      const sign = direction === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((a, b) => {
        if ((key(a) === "") !== (key(b) === "")) return key(a) === "" ? 1 : -1;
        return sign * compare(key(a), key(b), numeric);
      });
      body.append(...rows);
    });
  });

  const hidden = new Set();
  document.querySelectorAll(".legend button").forEach((button) => {
    button.addEventListener("click", () => {
      const loss = button.dataset.loss;
      const show = hidden.delete(loss);
      if (!show) hidden.add(loss);
      button.setAttribute("aria-pressed", String(show));
      document.querySelectorAll("g.series").forEach((series) => {
        if (series.dataset.loss === loss) series.style.display = show ? "" : "none";
      });
    });
  });

  const tooltip = document.getElementById("tooltip");
  document.querySelectorAll("figure svg").forEach((svg) => {
    const cursor = svg.querySelector(".cursor");
    const all = [...svg.querySelectorAll("g.series")].flatMap((series) =>
      JSON.parse(series.dataset.points).map(([x, y, epoch, recall]) => ({ x, y, epoch, recall, loss: series.dataset.loss })));
    const leave = () => { tooltip.hidden = true; cursor.setAttribute("hidden", ""); };
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("pointermove", (event) => {
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      let nearest = null, least = 40 * 40;
      for (const point of all) {
        if (hidden.has(point.loss)) continue;
        const distance = (point.x - place.x) ** 2 + (point.y - place.y) ** 2;
        if (distance < least) { least = distance; nearest = point; }
      }
      if (nearest === null) { leave(); return; }
      cursor.setAttribute("cx", nearest.x);
      cursor.setAttribute("cy", nearest.y);
      cursor.removeAttribute("hidden");
      tooltip.textContent = `${nearest.loss}: M-Recall ${nearest.recall} % at epoch ${nearest.epoch}`;
      tooltip.hidden = false;
      const box = tooltip.getBoundingClientRect();
      tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.width - 8))}px`;
      tooltip.style.top = `${Math.max(4, event.clientY - box.height - 12)}px`;
    });
  });
})();
