// Names and focus for readers without a pointer, where theme and notebooks have none.
document$.subscribe(() => {
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((each, at) => each.setAttribute("aria-label", `Code ${at + 1}`));
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .highlight-ipynb, .jp-RenderedHTML")
    .forEach((each) => each.setAttribute("tabindex", "0"));
  document.querySelectorAll("th:empty").forEach((each) => each.replaceWith(document.createElement("td")));
});
