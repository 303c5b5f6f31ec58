// Draws charts with Vega-Lite, which is unpacked when the first of them comes into view.
const drawing = {
  library: null,

  load() {
    this.library ??= (async () => {
      const packed = Uint8Array.from(atob(document.getElementById("chart-library").textContent), (c) => c.charCodeAt(0));
      const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = `(() => {${await new Response(unpacked).text()}})();`;
      document.head.append(script);
      return window.vegaEmbed;
    })();
    return this.library;
  },

  isDark() {
    return getComputedStyle(document.documentElement).getPropertyValue("color-scheme").trim() === "dark";
  },

  /** width: of the place, in pixels. */
  config(width = 400) {
    const style = getComputedStyle(document.documentElement);
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map((name) => style.getPropertyValue(name).trim());
    const font = getComputedStyle(document.body).fontFamily;
    return {
      aria: false, background: null, font, view: { stroke: null },
      axis: {
        labelColor: soft, titleColor: soft, gridColor: line, domainColor: soft, tickColor: soft, labelFontSize: 11.5,
        titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.7, labelLimit: 160,
      },
      axisX: { grid: false },
      legend: {
        labelColor: ink, labelFontSize: 12, symbolStrokeWidth: 2.5, symbolOpacity: 1, labelLimit: 180,
        columns: Math.max(1, Math.floor((width - 40) / 110)), layout: { bottom: { direction: "vertical", anchor: "start" } },
      },
      text: { color: ink },
    };
  },

  /** How often a loss repeats the colours, and so which dashes and which shape are its. */
  turn(index) {
    const { palette, dashes } = page.data.looks;
    return Math.floor(index / palette) % dashes.length;
  },

  shape(index) {
    return page.data.looks.shapes[this.turn(index)];
  },

  /** Of points that carry their shape, where the legend is of lines. */
  ownShape: { field: "shape", type: "nominal", scale: null, legend: null },

  /** Scales that give every loss the colour, dashes and shape that it has everywhere on the page. legend: with lines or with points. */
  lossScales(losses, legend = "lines") {
    const { palette, dashes } = page.data.looks;
    const style = getComputedStyle(document.documentElement);
    const domain = losses.map(([name]) => name);
    const shown = { title: null, orient: "bottom", ...(legend === "lines" ? { symbolType: "stroke", symbolSize: 260 } : {}) };
    const scale = (of, isTold) => ({
      field: "loss", type: "nominal", legend: isTold ? shown : null, scale: { domain, range: losses.map(([, index]) => of(index)) },
    });
    return {
      color: scale((index) => style.getPropertyValue(`--c${index % palette}`).trim(), true),
      dash: scale((index) => dashes[this.turn(index)], legend === "lines"),
      shape: scale((index) => this.shape(index), legend === "points"),
    };
  },

  /** In place of what stood there; its height stays while it is drawn. */
  async draw(place, spec) {
    const embed = await this.load();
    const made = element("div", { class: "drawn", "aria-hidden": "true" });
    place.style.minHeight = `${place.clientHeight}px`;
    place.replaceChildren(made);
    const options = {
      mode: "vega-lite", logLevel: 1, ast: true, actions: false, renderer: "svg", tooltip: { theme: this.isDark() ? "dark" : "light" }, config: this.config(place.clientWidth),
    };
    await embed(made, {
      width: "container", autosize: { type: "fit-x", contains: "padding", resize: true }, ...spec,
    }, options);
    place.style.minHeight = "";
  },
};
