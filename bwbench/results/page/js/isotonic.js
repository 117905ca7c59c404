"use strict";
// Where a curve crosses a target: an isotonic fit over log samples, as in bwbench/results/analysis/arrival.py.

const AT_OR_AFTER = 3, TIE = 1e-12, OF_BUDGET = 1.5;

/** The evaluations of a cell that have a value: [{samples, value, clock}]. */
function evaluationsOf(cell) {
  const known = (cell.values || []).map((value, index) => ({ value, samples: cell.samples_at[index], clock: cell.clocks[index] }));
  return known.filter((point) => point.value !== null);
}

/**
 * {kind: "fit", samples, time}, {kind: "censored", time} up to which it had not arrived, or {kind: "unknown"}.
 * `wentOn`: the run ended at its budget; else at a target, and what would have come then is not known.
 */
function fittedArrival(points, metric, target, budget, wentOn) {
  if (!points.length) return { kind: "unknown" };
  const samples = crossingOf(points, metric, target);
  if (samples !== null) {
    const time = straight(samples, points.map((point) => [point.samples, point.clock]));
    const early = (budget.samples === null || samples * OF_BUDGET <= budget.samples) && (budget.time === null || time * OF_BUDGET <= budget.time);
    if (early) return points.filter((point) => point.samples >= samples).length >= AT_OR_AFTER ? { kind: "fit", samples, time } : { kind: "unknown" };
  } else if (!wentOn) return { kind: "unknown" };
  const time = lastCounted(points, budget);
  return time > 0 ? { kind: "censored", time } : { kind: "unknown" };
}

/** Samples at which the fit crosses the target; null where it does not. */
function crossingOf(points, metric, target) {
  const sign = metric === "loss" ? -1 : 1, aim = sign * target - TIE, blocks = isotonicBlocks(points, sign);
  if (!blocks.length) return null;
  if (blocks[0].value >= aim) {
    const metBefore = points.some((point) => point.samples <= 0 && sign * point.value >= aim);
    return metBefore ? 0 : points.find((point) => point.samples > 0).samples;
  }
  const later = blocks.findIndex((block) => block.value >= aim);
  if (later < 0) return null;
  const left = blocks[later - 1], right = blocks[later];
  return Math.exp(left.centre + ((aim - left.value) / (right.value - left.value)) * (right.centre - left.centre));
}

/** Neighbours that get one value, up to the best mean of three: [{centre, value, num}], values rising. */
function isotonicBlocks(points, sign) {
  const rising = points.filter((point) => point.samples > 0).map((point) => ({ centre: Math.log(point.samples), value: sign * point.value, num: 1 }));
  const blocks = [];
  for (const block of rising.slice(0, bestOfThree(rising))) {
    blocks.push(block);
    while (blocks.length > 1 && blocks[blocks.length - 2].value >= blocks[blocks.length - 1].value - TIE) {
      const last = blocks.pop(), before = blocks.pop(), num = before.num + last.num;
      const mean = (name) => (before.num * before[name] + last.num * last[name]) / num;
      blocks.push({ centre: mean("centre"), value: mean("value"), num });
    }
  }
  return blocks;
}

/** How many there are up to the end of the three neighbours with the best mean; of equal ones the last. */
function bestOfThree(points) {
  if (points.length <= AT_OR_AFTER) return points.length;
  const sum = (end) => points[end - 3].value + points[end - 2].value + points[end - 1].value;
  let best = 3;
  for (let end = 4; end <= points.length; end++) if (sum(end) >= sum(best) - TIE) best = end;
  return best;
}

/** Training clock up to which an arrival counts: where the budget over OF_BUDGET ends, or the curve. */
function lastCounted(points, budget) {
  const ends = [points[points.length - 1].samples];
  if (budget.samples !== null) ends.push(budget.samples / OF_BUDGET);
  if (budget.time !== null) ends.push(straight(budget.time / OF_BUDGET, points.map((point) => [point.clock, point.samples])));
  return straight(Math.min(...ends), points.map((point) => [point.samples, point.clock]));
}

/** Straight between points of rising x, from (0, 0) to the first; the last value beyond. */
function straight(x, points) {
  const after = points.findIndex((point) => point[0] >= x);
  if (after < 0) return points[points.length - 1][1];
  const [beginX, begin] = after ? points[after - 1] : [0, 0], [endX, end] = points[after];
  return endX <= beginX ? end : begin + ((end - begin) * (x - beginX)) / (endX - beginX);
}
