"use strict";
// The page: everything is drawn anew from the state, once a frame at most.

let pending = null;

/** Draw again, after the browser has painted what the reader is moving. `table: false` where no cell can change. */
function refresh({ table = true } = {}) {
  if (pending) {
    pending.table = pending.table || table;
    return;
  }
  pending = { table };
  requestAnimationFrame(() => {
    const wanted = pending;
    pending = null;
    drawAll(wanted.table);
  });
}

function drawAll(table) {
  const cells = chosenCells(), points = state.target === null ? [] : pointsOf(cells, state.target);
  const here = cells.filter((cell) => cell.needs_no_link || cell.bandwidth_bps === state.bandwidth);
  drawHeadings();
  drawRecommendation();
  drawTimes(points);
  drawCurves(here, state.target);
  drawNumbers(points);
  if (table) {
    drawLedgers(here);
    drawTable();
  }
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1); // for whoever waits for it
}

function drawHeadings() {
  const { group } = state, link = [state.bandwidth === null ? "unshaped link" : rate(state.bandwidth)];
  if (state.rtt !== null) link.push(`RTT ${shortTime(state.rtt)}`);
  const about = [`${group.model} on ${group.dataset}`, group.words].filter(Boolean).join(" \u00b7 ");
  byId("times-title").textContent = state.target === null ? "Time to accuracy" : `Time to ${targetWords()}`;
  byId("times-about").textContent = [about, state.rtt === null ? "" : `RTT ${shortTime(state.rtt)}`].filter(Boolean).join(" \u00b7 ");
  byId("curves-title").textContent = `${group.metric === "accuracy" ? "Accuracy" : "Loss"} over time at ${link[0]}`;
  byId("ledgers-title").textContent = `Where a step\u2019s time goes at ${link[0]}`;
  byId("curves-about").textContent = byId("ledgers-about").textContent = [about, ...link.slice(1)].join(" \u00b7 ");
  byId("notes").replaceChildren(...group.notes.map((note) => make("li", {}, note)), ...beyondNote());
}

/** Runs that stopped at their target say nothing of a higher one. */
function beyondNote() {
  const { group } = state;
  if (state.target === null || group.target === null || meets(group.metric, group.target, state.target)) return [];
  const stopped = group.cells.filter((cell) => cell.stops_at_target && cell.status === "done").length;
  if (!stopped) return [];
  return [make("li", { class: "warning" }, `${plural(stopped, "run")} stopped at the recorded target of ${metricWords(group.target, group.metric)}: when they reach a harder one is unknown until they are run again.`)];
}

/** The chart in numbers, for readers who do not see it; also what a screen reader is told of a change. */
function drawNumbers(points) {
  const bandwidths = unique(points.filter((p) => !p.limit).map((p) => p.bandwidth)).sort((a, b) => (a === null) - (b === null) || a - b);
  const columns = bandwidths.length ? bandwidths : [null];
  const rows = [...groupBy(points, (point) => point.arm)].map(([arm, ofArm]) => make("tr", {},
    make("th", { scope: "row" }, armTag(arm)),
    ...columns.map((bps) => {
      const point = ofArm.find((one) => one.limit || one.bandwidth === bps);
      const marks = point ? [point.numComposed ? "composed" : "", point.estimate.numCensored ? "censored" : ""].filter(Boolean) : [];
      return make("td", { class: "number" }, point ? estimateWords(point.estimate) + crossingMark(point.firstCrossing) : DASH, ...marks.map((mark) => make("span", { class: `mark ${mark}` }, mark)));
    })));
  const head = make("tr", {}, make("th", { scope: "col" }, "arm"), ...columns.map((bps) => make("th", { scope: "col", class: "number" }, bps === null ? "unshaped" : rate(bps))));
  byId("numbers").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  const shown = points.filter((p) => p.limit || p.bandwidth === state.bandwidth).sort((a, b) => a.estimate.value - b.estimate.value);
  const fastest = shown.find((p) => mayWin(report.arms[p.arm].role));
  const words = fastest ? `Fastest at ${rate(state.bandwidth)}: ${armLabel(fastest.arm)}, ${estimateWords(fastest.estimate)}.` : "Nothing to show.";
  byId("announce").textContent = `${plural(rows.length, "arm")}. ${words}`;
  byId("times-chart").setAttribute("aria-label", `Time to target against bandwidth, ${plural(rows.length, "arm")}; the numbers follow as a table. ${words}`);
  byId("curves-chart").setAttribute("aria-label", `Curves of ${plural(shown.length, "arm")} over training time. ${words}`);
}

function largestGroup() {
  const done = (group) => group.cells.filter((cell) => cell.status === "done").length;
  return report.groups.reduce((most, group) => (done(group) > done(most) ? group : most));
}

function drawSubtitle() {
  const done_cells = report.cells.filter((cell) => cell.status === "done").length;
  byId("subtitle").textContent = [plural(report.cells.length, "cell") + (done_cells < report.cells.length && !report.live ? `, ${done_cells} done` : ""), report.experiments.length > 1 ? plural(report.experiments.length, "experiment") : "",
    plural(report.arms.length, "arm"), report.newest ? `newest record ${report.newest}` : ""].filter(Boolean).join(" \u00b7 ");
}

function start() {
  report = readReport(JSON.parse(byId("payload").textContent));
  drawSubtitle();
  chooseGroup(largestGroup());
  fillControls();
  suggestLink();
  listen();
  drawAll(true);
}

start();
