"use strict";
// Centre and interval of few, positive, sometimes censored times, and the ratio of two arms: the rules of statistics.py,
// welch.py, censored.py, ratio.py, taken_apart.py and best_set.py in bwbench/results/analysis, line by line, which a
// test holds against them. An arrival is {time, censoredAt, grid, timingVariance, timingFreedom, timingByPilot, ofPilot, kin, samples}: seconds,
// null where not reached; samples that it took, or that were taken until it was given up.

const SHORTEST_TIME = 1e-6, ASSUMED_BETWEEN = 0.03, WIDEST = 300;

function orInfinity(arrival) {
  return arrival.time === null ? Infinity : Math.max(arrival.time, SHORTEST_TIME);
}

function atLeast(arrival) {
  if (arrival.time !== null) return orInfinity(arrival);
  return arrival.censoredAt === null ? Infinity : Math.max(arrival.censoredAt, SHORTEST_TIME);
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

/** Variance of the log of a composed time by its timing runs, and degrees of freedom; 0 for a whole run. */
function timingOf(cell) {
  if (!cell.composed) return { timingVariance: 0, timingFreedom: Infinity };
  const runs = cell.timing_runs || 1, between = cell.between_share;
  if (runs > 1 && typeof between === "number") {
    return { timingVariance: between / runs, timingFreedom: (cell.timing_pilot || runs) - 1 };
  }
  return { timingVariance: ASSUMED_BETWEEN ** 2 + (cell.timing_share || 0) ** 2, timingFreedom: Infinity };
}

/** {value, low, high, atLeast, num, numCensored, middle, error}; low, high, error null where there is no interval. */
function estimate(arrivals) {
  const num = arrivals.length, reached = arrivals.filter((arrival) => arrival.time !== null);
  const numCensored = num - reached.length, none = { low: null, high: null, num, numCensored, error: null };
  if (numCensored && !canBeFitted(num, numCensored)) {
    return { ...none, value: Infinity, atLeast: median(arrivals.map(atLeast)), middle: NaN };
  }
  const logs = reached.map((arrival) => Math.log(middle(arrival)));
  const later = mean(reached.map((arrival) => Math.log(orInfinity(arrival) / middle(arrival))));
  let centre = mean(logs), seeds = num > 1 ? seedsPart(logs, reached.map(isOfPilot)) : null;
  if (numCensored) {
    const limits = arrivals.filter((arrival) => arrival.time === null).map((arrival) => Math.log(atLeast(arrival)));
    const fitted = censoredMean(logs, limits);
    centre = fitted.centre;
    seeds = { cause: "seeds", variance: fitted.variance, freedom: num - 1 };
  }
  const value = Math.exp(centre + later);
  if (num < 2) return { ...none, value, atLeast: value, middle: centre };
  const error = { parts: [seeds, timingPart(arrivals)], floor: floorOf([reached]) };
  const [low, high] = around(value, centre, error, CONFIDENCE);
  return { value, low, high, atLeast: value, num, numCensored, middle: centre, error };
}

/** Only the pilot's spread counts where the number of repeats followed from it. */
function seedsPart(logs, areOfPilot) {
  const pilot = logs.filter((_, i) => areOfPilot[i]), spread = pilot.length > 1 ? pilot : logs;
  return { cause: "seeds", variance: deviation(spread) ** 2 / logs.length, freedom: spread.length - 1 };
}

function isOfPilot(arrival) {
  return arrival.ofPilot !== false;
}

function timingPart(arrivals) {
  const worst = arrivals.reduce((one, other) => (other.timingVariance > one.timingVariance ? other : one));
  const twoStages = Boolean(worst.timingByPilot);
  return { cause: "timing runs", variance: worst.timingVariance, freedom: worst.timingFreedom, twoStages };
}

function varianceOf(parts) {
  return parts.reduce((sum, part) => sum + part.variance, 0);
}

/** Of Welch and Satterthwaite; infinite where nothing was estimated. */
function freedomOf(parts) {
  const weight = parts.reduce((sum, part) => sum + part.variance ** 2 / part.freedom, 0);
  return weight > 0 ? varianceOf(parts) ** 2 / weight : Infinity;
}

function isEstimated(part) {
  return part.variance > 0 && part.freedom !== Infinity;
}

/** Student's t for the estimated parts: those whose number of runs followed from their variance with their own t. */
function quantileOf(error, confidence) {
  const estimated = error.parts.filter(isEstimated), alone = estimated.filter((part) => part.twoStages);
  const others = estimated.filter((part) => !part.twoStages), t = studentT(freedomOf(others), confidence);
  if (!alone.length) return t;
  const weighted = alone.reduce((sum, part) => sum + part.variance * studentT(part.freedom, confidence), 0);
  return (varianceOf(others) * t + weighted) / varianceOf(estimated);
}

/** What some of its parts make without the grid: what is assumed, and not estimated, at a right angle to the rest. */
function halfWidthOf(parts, error, confidence) {
  const known = varianceOf(parts.filter((part) => part.freedom === Infinity));
  const estimated = varianceOf(parts.filter((part) => part.freedom !== Infinity));
  const ends = [[quantileOf(error, confidence), estimated], [studentT(Infinity, confidence), known]];
  return Math.hypot(...ends.filter((end) => end[1] > 0).map(([t, variance]) => t * Math.sqrt(variance)));
}

function halfWidth(error, confidence) {
  const spread = halfWidthOf(error.parts, error, confidence);
  if (error.floor <= 0) return spread;
  const timing = halfWidthOf(error.parts.filter((part) => part.cause === "timing runs"), error, confidence);
  return Math.max(spread, Math.hypot(error.floor, timing));
}

function around(value, centre, error, confidence) {
  const half = Math.min(halfWidth(error, confidence), WIDEST);
  return [Math.min(Math.exp(centre - half), value), Math.max(Math.exp(centre + half), value)];
}

/** How many times faster the arm is than the reference, both {seed: arrival}; null where nothing can be said. */
function ratioOf(reference, arm) {
  const references = Object.values(reference), arms = Object.values(arm);
  if (!references.length || !arms.length) return null;
  const seeds = Object.keys(reference).filter((seed) => seed in arm).sort((a, b) => a - b);
  const pairs = seeds.map((seed) => [reference[seed], arm[seed]]);
  const arrived = pairs.every(([one, other]) => one.time !== null && other.time !== null);
  return pairs.length > 1 && areKin([...references, ...arms]) && arrived ? paired(pairs) : unpaired(references, arms);
}

function areKin(arrivals) {
  return new Set(arrivals.map((arrival) => arrival.kin || "")).size === 1 && Boolean(arrivals[0].kin);
}

function paired(pairs) {
  const value = Math.exp(mean(pairs.map(([one, other]) => Math.log(orInfinity(one) / orInfinity(other)))));
  const logs = pairs.map(([one, other]) => Math.log(middle(one) / middle(other)));
  const sides = [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1])];
  const seeds = seedsPart(logs, pairs.map((pair) => pair.every(isOfPilot)));
  const error = { parts: [seeds, ...sides.map(timingPart)], floor: floorOf(sides) };
  const [low, high] = around(value, mean(logs), error, CONFIDENCE);
  return { value, low, high, num: pairs.length, bound: "", numCensored: 0, paired: true, middle: mean(logs), error };
}

function unpaired(references, arms) {
  const one = estimate(references), other = estimate(arms);
  const about = { num: Math.min(one.num, other.num), numCensored: one.numCensored + other.numCensored, paired: false };
  const none = { ...about, low: null, high: null, bound: "", error: null };
  if (one.value === Infinity && other.value === Infinity) return null;
  if (one.value === Infinity) {
    return { ...none, value: one.atLeast / (other.high === null ? other.value : other.high), bound: ">" };
  }
  if (other.value === Infinity) {
    return { ...none, value: (one.high === null ? one.value : one.high) / other.atLeast, bound: "<" };
  }
  const value = one.value / other.value, centre = one.middle - other.middle;
  if (one.error === null || other.error === null) return { ...none, value };
  const reached = [references, arms].map((side) => side.filter((arrival) => arrival.time !== null));
  const error = { parts: [...one.error.parts, ...other.error.parts], floor: floorOf(reached) };
  const [low, high] = around(value, centre, error, CONFIDENCE);
  return { ...about, value, low, high, bound: "", middle: centre, error };
}

/** The ratio as that of the training time of a sample, times that of the samples; null where samples are not known. */
function takeApart(reference, arm) {
  if (![...Object.values(reference), ...Object.values(arm)].every((arrival) => arrival.samples)) return null;
  const each = (side, of) => Object.fromEntries(Object.entries(side).map(([seed, arrival]) => [seed, of(arrival)]));
  const [step, samples] = [timeOfSample, samplesInPlaceOfTime].map((of) => ratioOf(each(reference, of), each(arm, of)));
  return step === null || samples === null ? null : { step, samples };
}

function timeOfSample(arrival) {
  return { ...arrival, time: atLeast(arrival) / arrival.samples, censoredAt: null, grid: 0 };
}

function samplesInPlaceOfTime(arrival) {
  const found = { ...arrival, timingVariance: 0 };
  if (arrival.time === null) return { ...found, censoredAt: arrival.samples };
  const share = Math.min(arrival.grid, orInfinity(arrival)) / orInfinity(arrival);
  return { ...found, time: arrival.samples, grid: share * arrival.samples };
}

/** The one-sided end of a ratio to the first arm that makes `numTests` of them hold together; null without an interval. */
function lowestEnd(ratio, numTests) {
  if (ratio.error === null) return null;
  return around(ratio.value, ratio.middle, ratio.error, 1 - 2 * (1 - together(numTests)))[0];
}

function canBeFitted(num, numCensored) {
  return num - numCensored >= 2 && 2 * (num - numCensored) >= num;
}

/** {centre, variance} of logarithms of which some are known only to exceed a limit. */
function censoredMean(logs, limits) {
  const count = logs.length + limits.length, all = [...logs, ...limits];
  let centre = mean(all);
  let spread = Math.max(Math.sqrt(all.reduce((sum, value) => sum + (value - centre) ** 2, 0) / count), 1e-9);
  for (let round = 0; round < 2000; round++) {
    const tails = limits.map((limit) => tail((limit - centre) / spread));
    const expected = [...logs, ...tails.map(([expectation]) => centre + spread * expectation)];
    const nextCentre = mean(expected);
    let squares = expected.reduce((sum, value) => sum + (value - nextCentre) ** 2, 0);
    squares += spread ** 2 * tails.reduce((sum, [, variance]) => sum + variance, 0);
    const nextSpread = Math.max(Math.sqrt(squares / count), 1e-9);
    const moved = Math.max(Math.abs(nextCentre - centre), Math.abs(nextSpread - spread));
    centre = nextCentre;
    spread = nextSpread;
    if (moved <= 1e-10 * spread) break;
  }
  return { centre, variance: (varianceOfCentre(logs, limits, centre, spread) * count) / (count - 1) };
}

function varianceOfCentre(logs, limits, centre, spread) {
  let ofCentre = 0, ofBoth = 0, ofSpread = 0;
  for (const value of logs) {
    const z = (value - centre) / spread;
    ofCentre += 1;
    ofBoth += 2 * z;
    ofSpread += 3 * z * z - 1;
  }
  for (const limit of limits) {
    const z = (limit - centre) / spread, [expectation, variance] = tail(z), slope = 1 - variance;
    ofCentre += slope;
    ofBoth += expectation + z * slope;
    ofSpread += z * (2 * expectation + z * slope);
  }
  const determinant = ofCentre * ofSpread - ofBoth ** 2;
  if (determinant <= 0 || ofSpread <= 0) return spread ** 2 / ofCentre;
  return (spread ** 2 * ofSpread) / determinant;
}

function tail(z) {
  if (z > 30) return [z + 1 / z, 1 / z ** 2];
  const expectation = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI) / normalTail(z);
  return [expectation, Math.min(1, Math.max(0, 1 - expectation * (expectation - z)))];
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
