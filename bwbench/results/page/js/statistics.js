"use strict";
// Centre and interval of few, positive, sometimes censored times: the rules of bwbench/results/analysis/statistics.py, line by
// line, which a test holds against it. An arrival is {time, censoredAt, grid, shared}: seconds, null where not reached.

const SHORTEST_TIME = 1e-6, CONFIDENCE = 0.95, NORMAL = 1.96;

function orInfinity(arrival) {
  return arrival.time === null ? Infinity : Math.max(arrival.time, SHORTEST_TIME);
}

function atLeast(arrival) {
  if (arrival.time !== null) return orInfinity(arrival);
  return arrival.censoredAt === null ? Infinity : arrival.censoredAt;
}

function middle(arrival) {
  const time = orInfinity(arrival);
  return Math.max(time - Math.min(arrival.grid, time) / 2, SHORTEST_TIME);
}

function gridShare(arrival) {
  return arrival.time === null ? 0 : Math.min(arrival.grid, orInfinity(arrival)) / middle(arrival);
}

function evaluationNumber(arrival) {
  return arrival.time !== null && arrival.grid > 0 ? roundHalfEven(orInfinity(arrival) / arrival.grid) : 0;
}

function roundHalfEven(value) {
  const whole = Math.floor(value);
  if (value - whole !== 0.5) return Math.round(value);
  return whole % 2 === 0 ? whole : whole + 1;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function deviation(values) {
  const centre = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
}

function median(values) {
  const ordered = [...values].sort((a, b) => a - b);
  const low = ordered[(ordered.length - 1) >> 1], high = ordered[ordered.length >> 1];
  return low === high ? low : (low + high) / 2;
}

/** {value, low, high, atLeast, num, numCensored}; low and high null where there is no interval. */
function estimate(arrivals) {
  const num = arrivals.length, numCensored = arrivals.filter((arrival) => arrival.time === null).length;
  if (numCensored) {
    const centre = median(arrivals.map(orInfinity)), bound = median(arrivals.map(atLeast));
    return { value: centre, low: null, high: null, atLeast: Number.isFinite(centre) ? centre : bound, num, numCensored };
  }
  const value = Math.exp(mean(arrivals.map((arrival) => Math.log(orInfinity(arrival)))));
  const logs = arrivals.map((arrival) => Math.log(middle(arrival)));
  const [low, high] = around(value, logInterval(logs, floorOf([arrivals]), sharedOf(arrivals)));
  return { value, low, high, atLeast: value, num, numCensored };
}

/** How many times faster the arm is than the reference, both {seed: arrival}; null where no seed says anything. */
function pairedRatio(reference, arm) {
  const seeds = Object.keys(reference).filter((seed) => seed in arm);
  const pairs = seeds.sort((a, b) => a - b).map((seed) => [reference[seed], arm[seed]]);
  if (!pairs.length) return null;
  const numCensored = pairs.filter(([one, other]) => one.time === null || other.time === null).length;
  const ratio = { low: null, high: null, num: pairs.length, bound: "", numCensored };
  if (!numCensored) {
    const value = Math.exp(mean(pairs.map(([one, other]) => Math.log(orInfinity(one) / orInfinity(other)))));
    const references = pairs.map((pair) => pair[0]), arms = pairs.map((pair) => pair[1]);
    const logs = pairs.map(([one, other]) => Math.log(middle(one) / middle(other)));
    const shared = Math.hypot(sharedOf(references), sharedOf(arms));
    const [low, high] = around(value, logInterval(logs, floorOf([references, arms]), shared));
    return { ...ratio, value, low, high };
  }
  const lower = medianRatio(pairs.map(([one, other]) => atLeast(one) / orInfinity(other)));
  const upper = medianRatio(pairs.map(([one, other]) => orInfinity(one) / atLeast(other)));
  if (lower === upper) return { ...ratio, value: lower };
  if (lower > 0 && upper === Infinity) return { ...ratio, value: lower, bound: ">" };
  if (lower === 0 && Number.isFinite(upper)) return { ...ratio, value: upper, bound: "<" };
  return null;
}

function medianRatio(ratios) {
  const ordered = [...ratios].sort((a, b) => a - b);
  const low = ordered[(ordered.length - 1) >> 1], high = ordered[ordered.length >> 1];
  return low === high ? low : Math.sqrt(low) * Math.sqrt(high);
}

function logInterval(logs, floor, shared) {
  if (logs.length < 2) return null;
  const spread = (studentT(logs.length - 1) * deviation(logs)) / Math.sqrt(logs.length);
  const half = Math.hypot(Math.max(spread, floor), shared);
  return [mean(logs) - half, mean(logs) + half];
}

function around(value, ends) {
  if (ends === null) return [null, null];
  return [Math.min(Math.exp(ends[0]), value), Math.max(Math.exp(ends[1]), value)];
}

function floorOf(arms) {
  const widths = arms.map((repeats) => mean(repeats.map(gridShare)));
  const inCommon = arms.map((repeats) => shareInCommon(repeats.map(evaluationNumber)));
  if (inCommon.every((share) => share === 1)) {
    const [wide, narrow] = [...widths, 0].sort((a, b) => b - a);
    return central(wide, narrow);
  }
  const variance = widths.reduce((sum, width, index) => sum + (inCommon[index] * width ** 2) / 12, 0);
  return CONFIDENCE * Math.sqrt(3 * variance);
}

function shareInCommon(evaluations) {
  const counts = new Map();
  for (const evaluation of evaluations) counts.set(evaluation, (counts.get(evaluation) || 0) + 1);
  return [...counts.values()].reduce((sum, count) => sum + (count / evaluations.length) ** 2, 0);
}

function central(wide, narrow) {
  const tail = Math.sqrt((1 - CONFIDENCE) * wide * narrow);
  return tail < narrow ? (wide + narrow) / 2 - tail : (CONFIDENCE * wide) / 2;
}

function sharedOf(arrivals) {
  return NORMAL * Math.max(...arrivals.map((arrival) => arrival.shared));
}

const knownStudentT = new Map();

function studentT(degreesOfFreedom) {
  if (!knownStudentT.has(degreesOfFreedom)) {
    let low = 0, high = 1;
    while (twoSided(high, degreesOfFreedom) < CONFIDENCE) high *= 2;
    for (let i = 0; i < 80; i++) {
      const between = (low + high) / 2;
      if (twoSided(between, degreesOfFreedom) < CONFIDENCE) low = between;
      else high = between;
    }
    knownStudentT.set(degreesOfFreedom, (low + high) / 2);
  }
  return knownStudentT.get(degreesOfFreedom);
}

/** P(|T| <= t) for whole degrees of freedom: Abramowitz & Stegun 26.7.3 and 26.7.4. */
function twoSided(t, degreesOfFreedom) {
  const angle = Math.atan(t / Math.sqrt(degreesOfFreedom)), sine = Math.sin(angle), cosine = Math.cos(angle);
  const odd = degreesOfFreedom % 2;
  let term = odd ? cosine : 1, total = degreesOfFreedom > 1 || !odd ? term : 0;
  for (let k = 2 + odd; k < degreesOfFreedom - 1; k += 2) {
    term *= ((k - 1) / k) * cosine ** 2;
    total += term;
  }
  return odd ? (2 / Math.PI) * (angle + sine * total) : sine * total;
}
