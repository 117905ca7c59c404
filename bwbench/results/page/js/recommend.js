"use strict";
// Which arm is fastest on a link that was not measured: log-log between the measured bandwidths on either side.

const SAME = 1e-3; // bandwidths this close are one

/**
 * {rows, missing}: the arms on a link of this bandwidth, fastest first, each with its interval and `ratio`, its time over
 * the first one's. Arms without a time come last, with what they exceed. `missing` are arms that were
 * measured elsewhere alone: beside the others they would be judged by another link.
 */
function ranking(points, bandwidth) {
  const rows = [];
  for (const [arm, ofArm] of groupBy(points, (point) => point.arm)) {
    if (!mayWin(ofArm[0].cells[0].role)) continue;
    rows.push({ arm, ...between(ofArm, bandwidth) });
  }
  const comparable = rows.filter(isComparable(rows, bandwidth)), order = (a, b) => (a === b ? 0 : a - b);
  comparable.sort((a, b) => order(a.value, b.value) || order(a.atLeast, b.atLeast) || a.arm - b.arm);
  for (const row of comparable) row.ratio = ratioBetween(row, comparable[0], comparable.length - 1);
  return { rows: comparable, missing: rows.filter((row) => !comparable.includes(row)).map((row) => row.arm) };
}

/** Inside of what was measured all arms that were; outside of it those that were measured nearest. */
function isComparable(rows, bandwidth) {
  const linked = rows.filter((row) => !row.lower.limit);
  if (linked.some((row) => !row.outside)) return (row) => row.lower.limit || !row.outside;
  const distance = (row) => (row.lower.bandwidth === null ? 0 : Math.abs(Math.log(row.lower.bandwidth / bandwidth)));
  const nearest = Math.min(...linked.map(distance));
  return (row) => row.lower.limit || distance(row) <= nearest + SAME;
}

/** An arm's time at a bandwidth, from its points; outside of them the nearest one, and `outside` says so. */
function between(points, bandwidth) {
  const [lower, upper, weight, outside] = neighbours(points, bandwidth);
  const one = lower.estimate, other = upper.estimate;
  const ends = { lower, upper, weight, outside, num: Math.min(one.num, other.num), exact: lower === upper && !outside };
  const numCensored = Math.max(one.numCensored, other.numCensored);
  const both = (name) => logMix(one[name], other[name], weight);
  const interval = one.low === null || other.low === null ? [null, null] : [both("low"), both("high")];
  const numComposed = lower.numComposed + (lower === upper ? 0 : upper.numComposed);
  return { ...ends, value: both("value"), low: interval[0], high: interval[1], atLeast: both("atLeast"), numCensored, numComposed };
}

function neighbours(all, bandwidth) {
  const shaped = all.filter((point) => point.bandwidth !== null), points = shaped.length ? shaped : all;
  const first = points[0], last = points[points.length - 1];
  const same = points.find((point) => Math.abs(Math.log(point.bandwidth / bandwidth)) < SAME);
  if (first.limit || same) return [same || first, same || first, 0, false];
  if (bandwidth < first.bandwidth) return [first, first, 0, true];
  if (bandwidth > last.bandwidth || last.bandwidth === null) return [last, last, 0, true];
  const index = points.findIndex((point) => point.bandwidth > bandwidth);
  const lower = points[index - 1], upper = points[index];
  const weight = Math.log(bandwidth / lower.bandwidth) / Math.log(upper.bandwidth / lower.bandwidth);
  return [lower, upper, weight, false];
}

function logMix(one, other, weight) {
  if (weight === 0) return one;
  if (!Number.isFinite(one) || !Number.isFinite(other)) return Infinity;
  return Math.exp((1 - weight) * Math.log(one) + weight * Math.log(other));
}

/**
 * Time of `row` over time of `best`, at the same two bandwidths; null where those differ. `lowest` is the end that says
 * whether `row` is certainly slower, together with all others of `numTests` (best_set.py).
 */
function ratioBetween(row, best, numTests) {
  if (row === best || !Number.isFinite(best.value)) return null;
  return mixedRatio(row, best, (one, other) => {
    const ratio = ratioOf(one.seeds, other.seeds);
    return ratio === null ? null : { ...ratio, lowest: lowestEnd(ratio, numTests) };
  });
}

/** What that ratio is made of, {step, samples} (taken_apart.py); null where it is not known or a bound. */
function partsBetween(row, best) {
  const part = (name) => mixedRatio(row, best, (one, other) => {
    const parts = takeApart(one.seeds, other.seeds);
    return parts === null || parts.step.bound || parts.samples.bound ? null : parts[name];
  });
  const step = part("step"), samples = part("samples");
  return step === null || samples === null ? null : { step, samples };
}

/** A ratio of two rows from those at the bandwidths on either side, `ratioAt(point, point)`. */
function mixedRatio(row, best, ratioAt) {
  const matches = (end) => row[end].limit || best[end].limit || row[end].bandwidth === best[end].bandwidth;
  if (!matches("lower") || !matches("upper")) return null;
  const weight = row.weight || best.weight, low = ratioAt(row.lower, best.lower), high = ratioAt(row.upper, best.upper);
  if (low === null || high === null) return null;
  if (weight === 0) return low;
  if (low.bound !== high.bound) return null;
  const interval = (name) => (low[name] === null || high[name] === null ? null : logMix(low[name], high[name], weight));
  return { ...low, value: logMix(low.value, high.value, weight), low: interval("low"), high: interval("high"),
           lowest: low.lowest === undefined ? undefined : interval("lowest"),
           num: Math.min(low.num, high.num), numCensored: Math.max(low.numCensored, high.numCensored) };
}

/** "slower", "tie" (not certainly slower, tested together with the others) or "unknown" (no interval says it). */
function verdict(row) {
  if (row.ratio === null || row.ratio.bound === "<") return "unknown";
  if (row.ratio.bound === ">") return row.ratio.value > 1 ? "slower" : "unknown";
  if (row.ratio.lowest === null) return "unknown";
  return row.ratio.lowest <= 1 ? "tie" : "slower";
}

/** Of latencies as round trips the nearest one by ratio; null where cells have none. */
function nearestRtt(rtts, wanted) {
  const known = rtts.filter((rtt) => rtt !== null);
  if (!known.length) return null;
  const distance = (rtt) => Math.abs(Math.log(Math.max(rtt, 1e-4) / Math.max(wanted, 1e-4)));
  return known.reduce((best, rtt) => (distance(rtt) < distance(best) ? rtt : best));
}
