// Draws charts with Vega-Lite.
const drawing = {
  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  },

  /** The theme of every chart; its colours are variables of the style sheet. width: of the place, in pixels. */
  config(width) {
    const { theme } = page.data.looks;
    const columns = Math.max(1, Math.floor((width - 40) / 110));
    return { ...theme, aria: false, legend: { ...theme.legend, columns, layout: { bottom: { direction: "vertical", anchor: "start" } } } };
  },

  /** How often the colours repeat before a loss: the index of its dashes and shape. */
  turn(index) {
    const { palette, dashes } = page.data.looks;
    return Math.floor(index / palette) % dashes.length;
  },

  shape(index) {
    return page.data.looks.shapes[this.turn(index)];
  },

  /** Shape from the data, for points whose legend shows lines. */
  ownShape: { field: "shape", type: "nominal", scale: null, legend: null },

  /** Scales with the colour, dashes and shape that a loss has everywhere on the page. legend: of lines or of points. */
  lossScales(losses, legend = "lines") {
    const { palette, dashes } = page.data.looks;
    const domain = losses.map(([name]) => name);
    const shown = { title: null, orient: "bottom", ...(legend === "lines" ? { symbolType: "stroke", symbolSize: 260 } : {}) };
    const scale = (of, isTold) => ({
      field: "loss", type: "nominal", legend: isTold ? shown : null, scale: { domain, range: losses.map(([, index]) => of(index)) },
    });
    return {
      color: scale((index) => `var(--c${index % palette})`, true),
      dash: scale((index) => dashes[this.turn(index)], legend === "lines"),
      shape: scale((index) => this.shape(index), legend === "points"),
    };
  },

  /** Replaces the content of an element by the chart; the element keeps its height meanwhile. */
  async draw(place, spec) {
    const made = element("div", { class: "drawn", "aria-hidden": "true" });
    place.style.minHeight = `${place.clientHeight}px`;
    place.replaceChildren(made);
    const options = {
      mode: "vega-lite", logLevel: 1, ast: true, actions: false, renderer: "svg", tooltip: { theme: "custom" }, config: this.config(place.clientWidth),
    };
    await vegaEmbed(made, {
      width: "container", autosize: { type: "fit-x", contains: "padding", resize: true }, ...spec,
    }, options);
    place.style.minHeight = "";
  },
};
