// The figures of each section and their specifications. Numbers come from the data of the page and are rounded only in tables.
const rowOf = (key) => page.data.rows[key];
const number = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−"));
const lossesOf = (keys) => {
  const seen = new Map(keys.map((key) => [rowOf(key).loss, rowOf(key).colour]));
  return [...seen].sort(([, a], [, b]) => a - b);
};
const axis = (field, title, more = {}) => ({ field, type: "quantitative", title, scale: { zero: false, nice: true }, ...more });
const pointed = { name: "pointed", select: { type: "point", on: "pointerover", clear: "pointerout" } };

/** Lines of one value over epochs or trials, with a band where points have one. zero: whether the axis includes 0. */
function lineSpec(series, title, { layers = [], over = "epochs", near = false, zero = false } = {}) {
  const values = series.flatMap(({ key, is_proxy, search, points }) =>
    points.map((point) => ({ ...point, loss: rowOf(key).loss, shape: drawing.shape(rowOf(key).colour), line: is_proxy ? "proxy" : `search ${search ?? 1}` })));
  const scale = near ? nearTheBest(series) : { zero, nice: true };
  const y = (field) => axis(field, title, { scale });
  const hasBand = values.some(({ low, high }) => high > low);
  const { color, dash } = drawing.lossScales(lossesOf(series.map(({ key }) => key)));
  const ticks = over === "trials" ? { format: "d", tickMinStep: 1 } : {};
  const x = axis("epoch", over, { scale: { zero: false, nice: over !== "trials" }, axis: { tickCount: 7, ...ticks } });
  const few = Math.max(...series.map(({ points }) => points.length)) <= 12;
  return {
    height: 240, data: { values }, encoding: { color }, layer: [
      ...layers,
      ...(hasBand ? [{ mark: { type: "area", opacity: 0.18 / Math.sqrt(series.length), line: false, clip: near }, encoding: { x, y: y("low"), y2: { field: "high" }, detail: { field: "line" } } }] : []),
      { mark: { type: "line", clip: near }, encoding: {
        x, y: y("mean"), strokeDash: dash, detail: { field: "line" },
        strokeWidth: { condition: { test: "datum.line === 'proxy'", value: 1 }, value: 2.4 },
      } },
      { params: [pointed], mark: { type: "point", filled: true, clip: near }, encoding: {
        x, y: y("mean"), shape: drawing.ownShape, tooltip: { field: "words", type: "nominal" },
        opacity: { condition: { param: "pointed", empty: false, value: 1 }, value: few ? 0.75 : 0 },
        size: { condition: { param: "pointed", empty: false, value: 90 }, value: few ? 44 : 110 },
      } },
    ],
  };
}

/** The share of the best M-Recall above which `zoom in on values within 10 % of the best` shows a value. */
const NEAR = 0.9;
const bestOf = ({ points }) => Math.max(...points.map(({ mean }) => mean));

/** The axis of M-Recall near the best: from the lowest value after the first third of any line, but not below NEAR. */
function nearTheBest(series) {
  const best = Math.max(...series.map(bestOf));
  const late = series.flatMap(({ points }) => points.slice(Math.floor(points.length / 3)).map(({ low, mean }) => low ?? mean));
  const low = Math.max(Math.min(...late), NEAR * best);
  return { domain: [low, best + 0.05 * (best - low)], nice: true, zero: false };
}

/** Names of the pairs [name, M-Recall] that are below the visible range, in words; empty if all are visible. */
function outOfView(heights) {
  const least = NEAR * Math.max(...heights.map(([, height]) => height));
  const below = heights.filter(([, height]) => height < least).map(([name]) => name);
  return page.near && below.length ? `below the picture: ${below.join(", ")}` : "";
}
const linesOutOfView = (series) => outOfView(series.map((each) => [rowOf(each.key).loss, bestOf(each)]));
const joined = (...words) => words.filter((each) => each).join("; ");

/** The values of lines as a table with a row per epoch and a column per loss. */
function lineNumbers(series, digits, over = "epoch") {
  const epochs = [...new Set(series.flatMap(({ points }) => points.map(({ epoch }) => epoch)))].sort((a, b) => a - b);
  const byEpoch = series.map(({ points }) => new Map(points.map((point) => [point.epoch, point.mean])));
  return {
    heads: [over, ...series.map(({ key }) => rowOf(key).loss)],
    rows: epochs.map((epoch) => [number(epoch, 2), ...byEpoch.map((of) => number(of.get(epoch), digits))]),
  };
}

const groupsOf = (keys) => [...new Set(keys.map((key) => rowOf(key).group))];
const titleOf = (group) => {
  const { network, place } = Object.values(page.data.rows).find((row) => row.group === group);
  return [network, ` on ${place}`];
};
const inView = (series) => series.filter(({ key }) => page.shows(key));

/** Figures by section: id, title, description, specification and numbers. */
const figures = {
  curves() {
    return page.data.charts.curves.flatMap(({ summary, target, series }) => {
      const shown = inView(series);
      const { group } = rowOf(series[0].key);
      const rule = target && {
        data: { values: [{ value: target.value }] }, mark: { type: "rule", strokeDash: [2, 2], opacity: 0.9, clip: true, color: "var(--soft)" },
        encoding: { y: axis("value", "M-Recall (%)", page.near ? { scale: nearTheBest(shown) } : {}), color: null },
      };
      return shown.length === 0 ? [] : [{
        id: group, title: titleOf(group), aside: joined(target?.words, linesOutOfView(shown)), words: summary,
        spec: () => lineSpec(shown, "M-Recall (%)", { layers: rule ? [rule] : [], near: page.near }), numbers: () => lineNumbers(shown, 1),
      }];
    });
  },

  negatives() {
    return page.data.charts.negatives.flatMap(({ title, series }) => groupsOf(series.map(({ key }) => key)).flatMap((group) => {
      const shown = inView(series).filter(({ key }) => rowOf(key).group === group);
      const proxies = shown.filter(({ is_proxy }) => is_proxy).map(({ key }) => rowOf(key).loss);
      return shown.length === 0 ? [] : [{
        id: `${title}\t${group}`, title: titleOf(group), aside: title, spec: () => lineSpec(shown, "count", { zero: true }),
        words: `${title}, over epochs, ${titleOf(group).join("")}.` + (proxies.length ? ` Of ${proxies.join(", ")} by a proxy.` : ""),
        numbers: () => lineNumbers(shown, 1),
      }];
    }));
  },

  heights() {
    const { axes, points, front } = page.data.charts.heights;
    const over = page.over in axes ? page.over : Object.keys(axes)[0];
    const known = points.filter(({ key, x }) => page.shows(key) && x[over]);
    const isRepeated = known.some(({ key }) => drawing.turn(rowOf(key).colour) > 0); // then shapes tell losses, not networks
    const panelOf = ({ key }) => (isRepeated ? rowOf(key).group : rowOf(key).place);
    return [...new Set(known.map(panelOf))].map((panel) => {
      const shown = known.filter((point) => panelOf(point) === panel);
      return {
        id: `${over}\t${panel}`, title: isRepeated ? titleOf(panel) : [panel, ""],
        aside: joined(over === "target" ? frontWords(shown, front) : "", outOfView(shown.map(({ key, y }) => [rowOf(key).loss, y]))),
        words: `Best M-Recall over ${axes[over]}: ${shown.map(({ words, x }) => `${words}, ${x[over].words}`).join("; ")}.`,
        spec: () => heightSpec(shown, over, axes[over], over === "target" ? front : []),
        numbers: () => ({
          heads: ["network", "loss", "M-Recall", axes[over]],
          rows: shown.map(({ key, words, x }) => [rowOf(key).network, rowOf(key).loss, words.replace(/^.*?: M-Recall /, ""), x[over].words]),
        }),
      };
    });
  },

  tuning() {
    const { series } = page.data.charts.tuning;
    return groupsOf(series.map(({ key }) => key)).flatMap((group) => ["trials", "epochs"].flatMap((over) => {
      const shown = inView(series).filter(({ key }) => rowOf(key).group === group).map((each) => ({ key: each.key, search: each.search, points: each[over] }));
      const ends = shown.map(({ points }) => points.at(-1).words).join("; ");
      return shown.length === 0 ? [] : [{
        id: `${over}\t${group}`, title: titleOf(group), aside: joined(`after so many ${over}`, linesOutOfView(shown)),
        words: `Expected best M-Recall of a search after fewer ${over}, ${titleOf(group).join("")}. At its end: ${ends}.`,
        spec: () => lineSpec(shown, "M-Recall (%)", { over, near: page.near }), numbers: () => lineNumbers(shown, 1, over),
      }];
    }));
  },

  seconds() {
    const rows = inView(page.data.charts.seconds);
    return groupsOf(rows.map(({ key }) => key)).map((group) => {
      const shown = rows.filter(({ key }) => rowOf(key).group === group);
      return {
        id: group, title: titleOf(group), aside: "", words: `${shown.map(({ words }) => words).join("; ")}.`,
        spec: () => secondsSpec(shown),
        numbers: () => ({ heads: ["loss", "s/epoch"], rows: shown.map(({ key, value }) => [rowOf(key).loss, number(value, 1)]) }),
      };
    });
  },
};

/** Range of an axis: all points, and their intervals as far as these do not compress the points. */
function reach(values, ends) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = Math.max(1.2 * (high - low), 0.04 * Math.abs(high), 0.01);
  const pad = 0.06 * room;
  return [
    Math.max(Math.min(low, ...ends) - pad, low - room), Math.min(Math.max(high, ...ends) + pad, high + room),
  ];
}

/** Names the losses that are both the highest and the fastest of their network: their front is one point, not a line. */
function frontWords(shown, front) {
  const groups = groupsOf(shown.map(({ key }) => key));
  const name = ({ network, loss }) => (groups.length > 1 ? `${network} ${loss}` : loss);
  const alone = groups.flatMap((group) => {
    const of = front.filter((key) => rowOf(key).group === group && page.shows(key));
    return of.length === 1 ? of : [];
  });
  return alone.length ? `highest and fastest, not tested: ${alone.map((key) => name(rowOf(key))).join(", ")}` : "";
}

/** Moves points to the right of others that they would hide; their words keep the value. */
function apart(values, xDomain, yDomain) {
  const span = ([low, high]) => high - low;
  const hides = (one, other) => Math.abs(one.x - other.x) < 0.012 * span(xDomain) && Math.abs(one.y - other.y) < 0.02 * span(yDomain);
  values.forEach((value, at) => {
    while (values.slice(0, at).some((other) => hides(value, other))) value.x += 0.016 * span(xDomain);
  });
}

function heightSpec(all, over, title, front) {
  const least = page.near ? NEAR * Math.max(...all.map(({ y }) => y)) : 0;
  const shown = all.filter(({ y }) => y >= least);
  const soft = "var(--soft)";
  const networks = [...new Set(shown.map(({ key }) => rowOf(key).network))];
  const values = shown.map(({ key, x, y, y_low, y_high, words }) => ({
    loss: rowOf(key).loss, network: rowOf(key).network, x: x[over].value, x_low: x[over].low,
    x_high: x[over].high, y, y_low, y_high, bound: x[over].is_bound, words: `${rowOf(key).network} ${words}, ${x[over].words}`,
    front: front.indexOf(key), group: rowOf(key).group, arrow: "→",
  }));
  const known = (name) => values.map((value) => value[name]).filter((value) => value !== null && value !== undefined);
  const xDomain = reach(known("x"), [...known("x_low"), ...known("x_high")]);
  const [right] = xDomain.slice(-1);
  const yDomain = reach(known("y"), [...known("y_low"), ...known("y_high")]);
  apart(values, xDomain, yDomain);
  for (const value of values) if (value.x_low !== null && value.x_high === null) value.x_high = right;
  const x = axis("x", title, { scale: { domain: [Math.max(0, xDomain[0]), right], nice: false }, axis: { tickCount: 7 } });
  const y = axis("y", "best M-Recall (%)", { scale: { domain: yDomain, nice: false } });
  const { color, shape: ofLoss } = drawing.lossScales(lossesOf(shown.map(({ key }) => key)), "points");
  const line = (encoding, wanted) => ({
    mark: { type: "rule", strokeWidth: 1.4, opacity: 0.55, clip: true }, transform: [{ filter: wanted }], encoding,
  });
  const ofNetwork = { field: "network", type: "nominal", legend: { title: null, orient: "bottom", symbolFillColor: soft, symbolStrokeColor: soft } };
  const shape = networks.length > 1 ? ofNetwork : ofLoss;
  return {
    height: 300, data: { values }, encoding: { color }, layer: [
      { mark: { type: "line", strokeWidth: 1.2, strokeDash: [3, 3], color: soft }, transform: [{ filter: "datum.front >= 0" }],
        encoding: { x, y, order: { field: "front" }, detail: { field: "group" }, color: null } },
      line({ y, x: { ...x, field: "x_low" }, x2: { field: "x_high" } }, "isValid(datum.x_low)"),
      line({ x, y: { ...y, field: "y_low" }, y2: { field: "y_high" } }, "isValid(datum.y_low)"),
      { mark: { type: "text", dx: 12, fontSize: 16, align: "center", baseline: "middle" }, transform: [{ filter: "datum.bound" }],
        encoding: { x, y, text: { field: "arrow" } } },
      { mark: { type: "point", filled: true, size: 90, opacity: 1, tooltip: true }, encoding: { x, y, shape, tooltip: { field: "words", type: "nominal" } } },
    ],
  };
}

function secondsSpec(shown) {
  const { color, dash } = drawing.lossScales(lossesOf(shown.map(({ key }) => key)));
  const unnamed = (channel) => ({ ...channel, legend: null }); // the axis names them
  const loss = (key) => rowOf(key).loss;
  const y = { field: "loss", type: "nominal", title: null, sort: shown.map(({ key }) => loss(key)) };
  const x = (field) => axis(field, "seconds", { scale: { zero: true }, axis: { grid: true, tickCount: 6 } });
  return {
    height: 26 * shown.length + 4, encoding: { y, color: unnamed(color) }, layer: [
      { data: { values: shown.map(({ key, value, words }) => ({ loss: loss(key), value, words })) },
        mark: { type: "bar", fillOpacity: 0.4, strokeWidth: 1.4, height: 14, tooltip: true }, encoding: { x: x("value"), stroke: unnamed(color), strokeDash: unnamed(dash), tooltip: { field: "words", type: "nominal" } } },
      { data: { values: shown.flatMap(({ key, seeds }) => seeds.map((seed) => ({ loss: loss(key), seed, shape: drawing.shape(rowOf(key).colour) }))) },
        mark: { type: "point", filled: true, size: 34, opacity: 0.9 }, encoding: { x: x("seed"), shape: drawing.ownShape } },
    ],
  };
}
