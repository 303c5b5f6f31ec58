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

  /** Scales that give every loss the colour and the dashes that it has everywhere on the page. */
  lossScales(losses) {
    const style = getComputedStyle(document.documentElement);
    const found = losses.map(([name, index]) => [name, index % page.data.palette, index >= page.data.palette]);
    const domain = found.map(([name]) => name);
    const legend = { title: null, orient: "bottom", symbolType: "stroke" };
    return {
      color: {
        field: "loss", type: "nominal",
        scale: { domain, range: found.map(([, index]) => style.getPropertyValue(`--c${index}`).trim()) },
        legend,
      },
      dash: {
        field: "loss", type: "nominal", legend,
        scale: { domain, range: found.map(([, , dashed]) => (dashed ? [6, 4] : [1, 0])) },
      },
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
