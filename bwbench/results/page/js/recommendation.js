"use strict";
// "Which algorithm for my link?" in words: the answer, its interval, who ties with it, and where the numbers are from.

const WITHIN = 1.1; // of the fastest, where one repeat leaves nothing but the ratio to judge by

function drawRecommendation() {
  const { bandwidth, latency } = state.link, out = byId("recommendation");
  if (!(bandwidth > 0) || !(latency >= 0)) return out.replaceChildren(make("p", { class: "note" }, "Enter a bandwidth above 0 and a latency of 0 or more."));
  const rtt = nearestRtt(rttsOf(state.group), 2 * latency);
  const points = state.target === null ? [] : pointsOf(chosenCells(rtt), state.target);
  const { rows, missing } = ranking(points, bandwidth);
  if (!rows.length) return out.replaceChildren(make("p", { class: "note" }, "No cell that is done says anything about this choice."));
  const best = rows[0];
  if (!Number.isFinite(best.value)) {
    return out.replaceChildren(make("p", { class: "answer" }, `No arm reached ${targetWords()} here.`), howFound(rows, rtt));
  }
  const tied = rows.slice(1).filter((row) => verdict(row) === "tie");
  const near = rows.slice(1).filter((row) => verdict(row) === "unknown" && row.value <= WITHIN * best.value);
  const open = rows.slice(1).filter((row) => !Number.isFinite(row.value) && verdict(row) === "unknown" && row.atLeast < best.value);
  const parts = [make("p", { class: "answer" }, swatch(best.arm), make("strong", {}, armName(best.arm)), ` reaches ${targetWords()} in `, make("strong", {}, estimateWords(best)), ".", best.outside ? make("span", { class: "mark bad" }, "not measured there") : null)];
  const second = rows.slice(1).find((row) => verdict(row) === "slower");
  const sentences = [];
  if (tied.length) sentences.push(`${names(tied)} ${tied.length > 1 ? "tie" : "ties"} with it: not certainly slower (tested together, 95 %).`);
  if (near.length) sentences.push(`${names(near)} ${near.length > 1 ? "are" : "is"} within ${Math.round(100 * (WITHIN - 1))} % of it, and ${best.num === 1 ? "one repeat says nothing about chance" : "there is no interval to tell them apart"}.`);
  if (open.length) sentences.push(`${names(open)} did not reach the target in the time given, which was shorter than this: nothing is known of ${open.length > 1 ? "them" : "it"}.`);
  if (second) sentences.push(`${armName(second.arm)} takes ${second.ratio.bound}${second.ratio.bound ? " " : ""}${ratioInterval(second.ratio)} as long.`);
  const single = rows.find((row) => row !== best && row.lower.cells[0].role === REFERENCE);
  if (best.lower.cells[0].role === REFERENCE) sentences.push("On this link one node alone is fastest: more nodes only cost time.");
  else if (single && single !== second && single.ratio) sentences.push(`One node alone takes ${single.ratio.bound}${single.ratio.bound ? " " : ""}${ratioInterval(single.ratio)} as long.`);
  if (missing.length) sentences.push(`Not measured around this bandwidth: ${missing.map(armName).join(", ")}.`);
  parts.push(make("p", {}, sentences.join(" ")), howFound(rows, rtt), rankingTable(rows));
  out.replaceChildren(...parts);
}

function targetWords() {
  const { metric } = state.group;
  return metric === "accuracy" ? `${metricWords(state.target, metric)} accuracy` : `${metric} ${metricWords(state.target, metric)}`;
}

function names(rows) {
  const all = rows.map((row) => armName(row.arm));
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all[all.length - 1]}`;
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
