"use strict";
// The two charts: time to accuracy against bandwidth, and accuracy over time. plotly draws; every label is plotText.

const HEIGHT = 440, LABEL_GAP = 15, WIDE = 620, DODGE = 0.01, INTERVAL_SHOWN = 4, LOG_FROM_RATIO = 8;

function drawTimes(points) {
  const shaped = points.filter((point) => !point.limit && point.bandwidth !== null);
  const bandwidths = [...new Set(shaped.map((point) => point.bandwidth))].sort((a, b) => a - b);
  const node = byId("times-chart");
  if (!points.length) return clearChart(node, "No cell that is done matches this choice.");
  if (bandwidths.length < 2) return drawRow(node, points.filter((p) => p.limit || p.bandwidth === state.bandwidth));
  const unit = timeUnit(Math.max(...points.map((point) => point.estimate.atLeast)));
  const layout = baseLayout(HEIGHT), wide = node.clientWidth >= WIDE;
  const byArm = [...groupBy(points, (point) => point.arm)], margin = 1.15 * dodgeOf(byArm.length - 1, byArm.length);
  const xs = [bandwidths[0] / margin / 1e6, (bandwidths[bandwidths.length - 1] * margin) / 1e6];
  const mine = state.link.bandwidth / 1e6;
  const range = timeRange(points, unit.seconds);
  const ticks = thinned(bandwidths.map((bps) => bps / 1e6), node.clientWidth);
  Object.assign(layout.xaxis, { type: "log", range: xs.map(Math.log10), title: axisTitle("link bandwidth (Mbit/s)"),
    tickvals: ticks, ticktext: ticks.map((value) => `${value}`) });
  Object.assign(layout.yaxis, { type: "log", range: range.map(Math.log10), ...logTicks(...range),
    title: axisTitle(`training time to target (${unit.symbol})`) });
  if (mine >= xs[0] && mine <= xs[1]) layout.shapes.push(acrossAt(mine));
  const traces = [], labels = [], beside = arrowsBeside(shaped);
  byArm.forEach(([arm, ofArm], number) => {
    const dodge = dodgeOf(number, byArm.length);
    if (ofArm[0].limit) traces.push(limitTrace(arm, ofArm[0], xs, unit));
    else traces.push(...armTraces(arm, ofArm.filter((p) => p.bandwidth !== null), dodge, unit, byArm.length));
    if (!ofArm[0].limit) traces.push(arrowTrace(arm, ofArm, beside, unit));
    const end = ofArm.filter((p) => p.limit || p.bandwidth !== null).pop();
    if (end) labels.push({ arm, value: end.estimate.atLeast / unit.seconds });
  });
  if (wide) nameEnds(layout, labels, range);
  Plotly.react(node, traces, layout, CHART_CONFIG);
}

/** Factor by which an arm's points stand beside their bandwidth, so that whiskers of many arms can be told apart. */
function dodgeOf(number, numArms) {
  return 10 ** (DODGE * (number - (numArms - 1) / 2));
}

function armTraces(arm, points, dodge, unit, numArms) {
  const color = armColor(arm), { symbol, dash } = report.arms[arm], x = (p) => (p.bandwidth * dodge) / 1e6;
  const reached = points.filter((p) => Number.isFinite(p.estimate.value));
  const y = (p) => p.estimate.value / unit.seconds, width = (end) => (p) => (p.estimate[end] === null ? 0 : Math.abs(p.estimate[end] - p.estimate.value) / unit.seconds);
  const line = {
    type: "scatter", mode: "lines+markers", name: plotText(armLabel(arm)), x: reached.map(x), y: reached.map(y),
    line: { color, width: 2, dash }, marker: { size: 9, color, symbol: reached.map((p) => (p.numComposed ? `${symbol}-open` : symbol)), line: { color: reached.map((p) => (p.numComposed ? color : themeColor("surface"))), width: reached.map((p) => (p.numComposed ? 2 : 1)) } },
    error_y: { type: "data", symmetric: false, array: reached.map(width("high")), arrayminus: reached.map(width("low")), color, thickness: 1.3, width: 3 },
    hoverinfo: "text", text: reached.map(pointHover),
  };
  const repeats = points.flatMap((p) => Object.values(p.seeds).filter((a) => a.time !== null).map((a) => [x(p) * 0.975, orInfinity(a) / unit.seconds]));
  const dots = { type: "scatter", mode: "markers", x: repeats.map((dot) => dot[0]), y: repeats.map((dot) => dot[1]), hoverinfo: "skip",
    marker: { size: 3.5, color, opacity: numArms > 8 ? 0.35 : 0.55 } };
  return [line, ...(repeats.length > reached.length ? [dots] : [])];
}

/** Arrows where the target was not reached: up from the limit. */
function arrowTrace(arm, points, beside, unit) {
  const censored = points.filter((point) => beside.has(point)), color = armColor(arm);
  return { type: "scatter", mode: "markers", x: censored.map((p) => (p.bandwidth / 1e6) * beside.get(p)), y: censored.map((p) => p.estimate.atLeast / unit.seconds),
    marker: { symbol: "arrow-up", size: 15, color, line: { color: themeColor("surface"), width: 1 } }, hoverinfo: "text", text: censored.map(pointHover) };
}

/** Censored points of one bandwidth stand side by side, because they often share their limit: {point: factor}. */
function arrowsBeside(points) {
  const factors = new Map();
  const censored = points.filter((point) => !Number.isFinite(point.estimate.value));
  for (const alike of groupBy(censored, (point) => point.bandwidth).values()) {
    const step = Math.min(0.035, 0.24 / alike.length);
    alike.forEach((point, index) => factors.set(point, 10 ** (step * (index - (alike.length - 1) / 2))));
  }
  return factors;
}

/** One node alone, or a free network: across, because no link concerns it. */
function limitTrace(arm, point, xs, unit) {
  const { estimate } = point, reached = Number.isFinite(estimate.value), { dash } = report.arms[arm];
  const y = estimate.atLeast / unit.seconds, x = [xs[0], Math.sqrt(xs[0] * xs[1]), xs[1]];
  return { type: "scatter", mode: reached ? "lines" : "lines+markers", x, y: x.map(() => y), line: { color: armColor(arm), width: 1.6, dash: reached && dash !== "solid" ? dash : "solid" },
    marker: { symbol: "arrow-up", size: 13, color: armColor(arm) }, hoverinfo: "text", text: x.map(() => pointHover(point)) };
}

function pointHover(point) {
  const { estimate } = point, words = [`<b>${plotText(armLabel(point.arm))}</b>`];
  words.push(point.limit ? "no link concerns it" : rate(point.bandwidth));
  words.push(estimateWords(estimate) + crossingMark(point.firstCrossing) + (estimate.numCensored && Number.isFinite(estimate.value) ? " (censored fit)" : ""));
  words.push(`n = ${estimate.num}${estimate.numCensored ? `, ${estimate.numCensored} censored` : ""}${estimate.low === null ? "" : ", 95 % interval"}`);
  if (point.numComposed) words.push(point.numComposed < point.cells.length ? `${point.numComposed} composed` : "composed, not measured whole");
  return words.join("<br>");
}

/** One bandwidth alone: a row an arm, fastest on top. */
function drawRow(node, points) {
  const rows = [...points].sort((a, b) => b.estimate.value - a.estimate.value || b.estimate.atLeast - a.estimate.atLeast);
  if (!rows.length) return clearChart(node, "No cell that is done matches this choice.");
  const unit = timeUnit(Math.max(...rows.map((point) => point.estimate.atLeast)));
  const layout = baseLayout(Math.max(220, 96 + 38 * rows.length)), range = timeRange(rows, unit.seconds);
  const traces = rows.map((point, number) => {
    const { estimate, arm } = point, reached = Number.isFinite(estimate.value), color = armColor(arm), { symbol } = report.arms[arm];
    const at = estimate.atLeast / unit.seconds, width = (end) => (estimate[end] === null ? 0 : Math.abs(estimate[end] - estimate.value) / unit.seconds);
    return [
      { type: "scatter", mode: "markers", x: [at], y: [number], hoverinfo: "text", text: [pointHover(point)],
        marker: { size: reached ? 12 : 16, color, symbol: !reached ? "arrow-right" : point.numComposed ? `${symbol}-open` : symbol, line: { color, width: point.numComposed ? 2 : 0 } },
        error_x: { type: "data", symmetric: false, array: [width("high")], arrayminus: [width("low")], color, thickness: 1.6, width: 4 } },
      { type: "scatter", mode: "markers", hoverinfo: "skip", x: Object.values(point.seeds).map((a) => atLeast(a) / unit.seconds), y: Object.values(point.seeds).map(() => number + 0.2),
        marker: { size: 4, color, opacity: estimate.num > 1 ? 0.6 : 0 } },
    ];
  }).flat();
  Object.assign(layout.xaxis, { type: "log", range: range.map(Math.log10), ...logTicks(...range), title: axisTitle(`training time to target (${unit.symbol})`) });
  Object.assign(layout.yaxis, { range: [-0.6, rows.length - 0.4], tickvals: rows.map((_, number) => number), ticktext: rows.map((point) => plotText(armLabel(point.arm))), showgrid: true });
  Plotly.react(node, traces, layout, CHART_CONFIG);
}

function drawCurves(cells, target) {
  const node = byId("curves-chart");
  const withCurve = (status) => cells.filter((cell) => cell.status === status && cell.values && cell.values.length > 1);
  const drawn = withCurve("done"), training = withCurve("running"), all = [...drawn, ...training];
  if (!all.length) return clearChart(node, "No evaluation was recorded for this choice.");
  const ends = all.map((cell) => cell.clocks[cell.clocks.length - 1]), longest = Math.max(...ends);
  const unit = timeUnit(longest), logarithmic = state.logTime ?? longest > LOG_FROM_RATIO * Math.min(...ends);
  byId("log-time").checked = logarithmic;
  const layout = baseLayout(HEIGHT), { metric } = state.group, wide = node.clientWidth >= WIDE;
  const bold = boldRuns(drawn, target), thin = drawn.filter((cell) => bold.get(cell.arm) !== cell);
  const traces = [...groupBy(thin, (cell) => cell.arm).values()].map((ofArm) => thinTrace(ofArm, unit, logarithmic));
  traces.push(...[...bold.values()].map((cell) => boldTrace(cell, unit, logarithmic)));
  traces.push(...training.map((cell) => trainingTrace(cell, unit, logarithmic)));
  Object.assign(layout.xaxis, { title: axisTitle(`training time (${unit.symbol})`), rangemode: "tozero" });
  if (logarithmic) {
    const begin = Math.min(...all.map((cell) => cell.clocks.find((clock) => clock > 0) || longest)) / unit.seconds / 1.1, end = (longest / unit.seconds) * 1.15;
    Object.assign(layout.xaxis, { type: "log", range: [begin, end].map(Math.log10), ...logTicks(begin, end) });
  }
  Object.assign(layout.yaxis, { title: axisTitle(metric === "loss" ? "validation loss (nats)" : `validation ${metric}`), ...(metric === "accuracy" ? { tickformat: ".0%" } : {}) });
  if (target !== null) {
    layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: themeColor("faint"), width: 1.2, dash: "5px,4px" } });
    layout.annotations.push({ xref: "paper", x: 0.005, xanchor: "left", y: target, yanchor: "bottom", showarrow: false, text: `target ${metricWords(target, metric)}`, font: { size: 12, color: themeColor("faint") } });
  }
  traces.push(...arrivalMarks(drawn, bold, target, unit));
  if (wide) layout.margin.r = 24;
  Plotly.react(node, traces, layout, CHART_CONFIG);
}

/** The points of a curve; on a logarithmic axis without the evaluation before the first step, which is at 0 s. */
function curvePoints(cell, unit, logarithmic) {
  const first = logarithmic && cell.clocks[0] <= 0 ? 1 : 0;
  return { x: cell.clocks.slice(first).map((clock) => clock / unit.seconds), y: cell.values.slice(first) };
}

function boldTrace(cell, unit, logarithmic) {
  const { dash } = report.arms[cell.arm];
  return { type: "scatter", mode: "lines", ...curvePoints(cell, unit, logarithmic), line: { color: armColor(cell.arm), width: 2.4, dash },
    hoverinfo: "text", text: `<b>${plotText(armLabel(cell.arm))}</b><br>seed ${cell.seed}${cell.composed ? ", composed" : ""}` };
}

/** A curve that is not at its end yet: dotted, with its newest evaluation marked. */
function trainingTrace(cell, unit, logarithmic) {
  const points = curvePoints(cell, unit, logarithmic), color = armColor(cell.arm), last = points.x.length - 1;
  return { type: "scatter", mode: "lines+markers", ...points, line: { color, width: 1.8, dash: "2px,3px" }, marker: { color, size: points.x.map((_, index) => (index === last ? 8 : 0)) },
    hoverinfo: "text", text: `<b>${plotText(armLabel(cell.arm))}</b><br>seed ${cell.seed}, trains: ${metricWords(points.y[last], cell.metric)}` };
}

/** All other runs of an arm as one line with gaps: a hundred lines of their own would take plotly ten times as long. */
function thinTrace(cells, unit, logarithmic) {
  const curves = cells.map((cell) => curvePoints(cell, unit, logarithmic));
  return { type: "scatter", mode: "lines", x: curves.flatMap((curve) => [...curve.x, null]), y: curves.flatMap((curve) => [...curve.y, null]),
    line: { color: armColor(cells[0].arm), width: 0.9 }, opacity: 0.45, hoverinfo: "skip", connectgaps: false };
}

/** Where each arm's bold run met the target. */
function arrivalMarks(cells, bold, target, unit) {
  if (target === null) return [];
  return [...bold].flatMap(([arm, cell]) => {
    const arrival = arrivalAt(cell, target), { symbol } = report.arms[arm];
    if (arrival === null || arrival.time === null) return [];
    const at = cell.clocks.findIndex((clock) => clock >= arrival.time * 0.9999), index = at < 0 ? cell.values.length - 1 : at;
    return [{ type: "scatter", mode: "markers", x: [arrival.time / unit.seconds], y: [cell.values[index]], hoverinfo: "text",
      text: [`<b>${plotText(armLabel(arm))}</b><br>target met after ${seconds(arrival.time)}${crossingMark(arrival.firstCrossing)}<br>seed ${cell.seed}${cell.composed ? ", composed" : ""}`],
      marker: { size: 10, color: armColor(arm), symbol: cell.composed ? `${symbol}-open` : symbol, line: { color: cell.composed ? armColor(arm) : themeColor("surface"), width: cell.composed ? 2 : 1 } } }];
  });
}

/** Of each arm the run with the median time to target; of even numbers the faster of the two in the middle. */
function boldRuns(cells, target) {
  const bold = new Map();
  for (const [arm, ofArm] of groupBy(cells, (cell) => cell.arm)) {
    const key = (cell) => {
      const arrival = target === null ? null : arrivalAt(cell, target);
      return arrival === null ? [Infinity, cell.training_clock_s || 0] : [orInfinity(arrival), atLeast(arrival)];
    };
    const keyed = ofArm.map((cell) => [...key(cell), cell.id, cell]);
    keyed.sort((a, b) => (a[0] === b[0] ? 0 : a[0] - b[0]) || a[1] - b[1] || (a[2] < b[2] ? -1 : 1));
    bold.set(arm, keyed[(keyed.length - 1) >> 1][3]);
  }
  return bold;
}

/** Ends of the time axis: all marks, and intervals as far as they do not squeeze them (at n = 2 one may span decades). */
function timeRange(points, unit) {
  const marks = points.flatMap((p) => [p.estimate.atLeast, ...Object.values(p.seeds).map(atLeast)])
    .filter((at) => at > SHORTEST_TIME && Number.isFinite(at)); // a limit of 0 s has no place on the axis
  const low = Math.min(...marks), high = Math.max(...marks), ends = points.map((p) => p.estimate).filter((e) => e.low !== null);
  const lowest = Math.max(low / INTERVAL_SHOWN, Math.min(low, ...ends.map((e) => e.low)));
  const highest = Math.min(high * INTERVAL_SHOWN, Math.max(high, ...ends.map((e) => e.high)));
  const room = Math.max(1.12, (highest / lowest) ** 0.06);
  return [lowest / room / unit, (highest * room) / unit];
}

/** The reader's link, as a dotted line. */
function acrossAt(bandwidth) {
  return { type: "line", x0: bandwidth, x1: bandwidth, yref: "paper", y0: 0, y1: 1, line: { color: themeColor("accent"), width: 1.5, dash: "2px,3px" } };
}

/** Names beside the right ends of the lines, pushed apart. */
function nameEnds(layout, labels, range) {
  const { t, b } = layout.margin, inside = HEIGHT - t - b, [low, high] = range.map(Math.log);
  const heights = labels.map(({ value }) => (inside * (high - Math.log(value))) / (high - low));
  const placed = spreadApart(heights, LABEL_GAP, 6, Math.max(inside - 6, 6 + LABEL_GAP * (labels.length - 1)));
  labels.forEach(({ arm }, index) => layout.annotations.push({
    xref: "paper", x: 1, xanchor: "left", xshift: 6, yref: "paper", y: 1 - placed[index] / inside, yanchor: "middle",
    showarrow: false, text: plotText(shortened(armLabel(arm))), font: { size: 12, color: armColor(arm) } }));
  layout.margin.r = 24 + 6.7 * Math.max(...labels.map(({ arm }) => shortened(armLabel(arm)).length));
}

function shortened(name) {
  return name.length > 24 ? `${name.slice(0, 23)}\u2026` : name;
}

/** Ticks at measured bandwidths, as many as have room. */
function thinned(values, width) {
  const gap = (Math.log(values[values.length - 1] / values[0]) * 34) / Math.max(width - 200, 120), kept = [];
  for (const value of values) if (!kept.length || Math.log(value / kept[kept.length - 1]) > gap) kept.push(value);
  return kept;
}

function clearChart(node, words) {
  const layout = baseLayout(160);
  Object.assign(layout.xaxis, { visible: false });
  Object.assign(layout.yaxis, { visible: false });
  layout.annotations.push({ text: plotText(words), showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { color: themeColor("faint") } });
  Plotly.react(node, [], layout, CHART_CONFIG);
}
