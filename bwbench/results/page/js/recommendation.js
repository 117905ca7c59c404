"use strict";
// "Which algorithm for my link?": the answer, and where its numbers are from.

function drawRecommendation() {
  const { bandwidth, latency } = state.link, out = byId("answer"), more = byId("answer-more");
  const sayOnly = (words) => { out.replaceChildren(make("p", { class: "note" }, words)); more.replaceChildren(); };
  if (!(bandwidth > 0) || !(latency >= 0)) return sayOnly("Enter a bandwidth above 0 and a latency of 0 or more.");
  const rtt = nearestRtt(rttsOf(state.group), 2 * latency);
  const points = state.target === null ? [] : pointsOf(chosenCells(rtt), state.target);
  const { rows, missing } = ranking(points, bandwidth);
  if (!rows.length) return sayOnly("No cell that is done says anything about this choice.");
  const [first, ...others] = sentencesOf(rows, rtt);
  const about = make("p", { class: "note" }, `${settingWords(rate(bandwidth))}:`);
  const best = rows[0], reached = Number.isFinite(best.value);
  const answer = make("p", { class: "answer" }, reached ? swatch(best.arm) : null, ...capitalised(first).map(asNode), reached && best.outside ? make("span", { class: "mark bad" }, "not measured there") : null);
  if (missing.length) others.splice(-1, 0, [`Not measured around this bandwidth: ${missing.map(armLabel).join(", ")}.`]);
  out.replaceChildren(about, answer, make("p", {}, others.map((pieces) => pieces.join("")).join(" ").replace(/n = (?=\d+\]$)/, "n\u00a0=\u00a0")));
  more.replaceChildren(howFound(rows, rtt), rankingTable(rows));
}

/** The sentences of answer.js on what the reader has chosen. */
function sentencesOf(rows, rtt) {
  const { group, target } = state;
  const recorded = target === group.target; // where one node is enough was found at that target
  const oneNode = (arm) => (recorded ? group.one_node.find((one) => one.arm === arm && (one.rtt_s === null || one.rtt_s === rtt))?.words : null);
  const words = group.metric === "accuracy" ? metricWords(target, group.metric) : targetWords();
  return answerSentences({ rows, baseline: group.baseline, target: words, oneNode, nameOf: armLabel });
}

/** `Four nodes, 10 Mbit/s, cnn on fashion-mnist`. */
function settingWords(link) {
  const { nodes, model, dataset, settings } = state.group, [first, ...rest] = nodes;
  return [`${first.toUpperCase()}${rest.join("")}`, link, `${model} on ${dataset}`, ...settings].join(", ");
}

/** On a line of its own it begins with a capital letter, unless it begins with a name. */
function capitalised([first, ...rest]) {
  return first.strong === undefined ? [`${first[0].toUpperCase()}${first.slice(1)}`, ...rest] : [first, ...rest];
}

function asNode(piece) {
  return piece.strong === undefined ? piece : make("strong", {}, piece.strong);
}

function targetWords() {
  const { metric } = state.group;
  return metric === "accuracy" ? `${metricWords(state.target, metric)} accuracy` : `${metric} ${metricWords(state.target, metric)}`;
}

function ratioInterval(ratio) {
  const text = ratioWords(ratio.value);
  return ratio.low === null ? text : `${text} [${ratioWords(ratio.low).slice(0, -1)}, ${ratioWords(ratio.high).slice(0, -1)}]`;
}

/** Where the numbers come from: measured, interpolated, or outside of what was measured. */
function howFound(rows, rtt) {
  const best = rows.find((row) => !row.lower.limit) || rows[0], { lower, upper, outside } = best, words = [];
  if (outside && lower.bandwidth !== null) {
    const measured = bandwidthsOf(state.group).filter((bps) => bps !== null);
    words.push(`Outside of what was measured (${rate(measured[0])} to ${rate(measured[measured.length - 1])}): this is the answer at ${rate(lower.bandwidth)}, and nothing is extrapolated.`);
  } else if (outside) words.push("Measured without a shaped link: bandwidth is not compared.");
  else if (lower.limit) words.push("No link concerns it.");
  else if (lower === upper) words.push(`Measured at ${rate(lower.bandwidth)}.`);
  else words.push(`Interpolated between ${rate(lower.bandwidth)} and ${rate(upper.bandwidth)}, linearly in the logarithms of bandwidth and time, ends of intervals alike.`);
  const wanted = 2 * state.link.latency;
  if (rtt !== null && Math.abs(rtt - wanted) > 1e-6) words.push(`Latency: measured at RTT ${shortTime(rtt)}, the nearest to your ${shortTime(wanted)}.`);
  else if (rtt !== null) words.push(`Latency: measured at this RTT, ${shortTime(rtt)}.`);
  const num = Math.min(...rows.map((row) => row.num)), most = Math.max(...rows.map((row) => row.num));
  words.push(most === 1 ? "n = 1: one repeat says nothing about chance, and has no interval." : `n = ${num === most ? num : `${num}\u2013${most}`}; 95 % intervals.`);
  if (rows.some((row) => row.numComposed)) words.push("Some values are composed, not measured whole.");
  return make("p", { class: "note" }, words.join(" "));
}

function rankingTable(rows) {
  const body = rows.map((row) => {
    const ratio = row.ratio === null ? (row === rows[0] ? `1${TIMES}` : DASH) : `${row.ratio.bound}${ratioInterval(row.ratio)}`;
    const words = { slower: "", tie: "ties", unknown: "" }[row === rows[0] ? "slower" : verdict(row)];
    const how = row.lower.limit ? "no link" : row.outside ? "outside" : row.lower === row.upper ? "measured" : "interpolated";
    return make("tr", {}, make("th", { scope: "row" }, armTag(row.arm)), make("td", { class: "number" }, estimateWords(row)),
      make("td", { class: "number" }, ratio, words ? make("span", { class: "mark composed" }, words) : null), make("td", { class: "number" }, `${row.num}`), make("td", {}, how, row.numComposed ? make("span", { class: "mark composed" }, "composed") : null));
  });
  const heads = [["arm", ""], ["time to target", "number"], ["\u00f7 fastest", "number"], ["n", "number"], ["how", ""]];
  return make("details", {}, make("summary", {}, `All ${rows.length} arms on this link`), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "all arms on this link" },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(([name, kind]) => make("th", { scope: "col", class: kind || null }, name)))), make("tbody", {}, ...body))));
}
