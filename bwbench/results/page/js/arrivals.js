"use strict";
// When each cell reached a target: by the fit of its validation curve; at the recorded target, as the tables have it.

// What an arm is in a comparison, as its components declare it.
const METHOD = "method", REFERENCE = "reference", HEADROOM = "headroom"; // one node alone; averages that cost nothing
const LIMITS = [REFERENCE, HEADROOM]; // no link concerns them: drawn across

/** Free averages take no part in the race: no link is like that. */
function mayWin(role) {
  return role !== HEADROOM;
}

function meets(metric, value, target) {
  return metric === "loss" ? value <= target : value >= target;
}

/** An arrival of statistics.js; null for a cell that is not done, or whose curve does not say when it reaches the target. */
function arrivalAt(cell, target) {
  if (cell.status !== "done") return null;
  const about = { ...timingOf(cell), timingByPilot: typeof cell.timing_pilot === "number", kin: cell.kin || "", ofPilot: cell.of_pilot };
  if (target === cell.target_value && (cell.time_to_target_s !== null || cell.censored_at_s !== null)) {
    const time = cell.time_to_target_s, firstCrossing = cell.arrival_kind === "first crossing";
    if (time === null) return { time, censoredAt: cell.censored_at_s, grid: 0, samples: samplesUntil(cell, cell.censored_at_s), ...about };
    const grid = cell.arrival_kind === "fit" ? 0 : gridOf(cell, time, cell.samples_to_target);
    return { time, censoredAt: null, grid, firstCrossing, samples: cell.samples_to_target, ...about };
  }
  const budget = { samples: cell.limit_samples, time: cell.limit_s }, wentOn = cell.reason !== "target";
  const found = fittedArrival(evaluationsOf(cell), cell.metric, target, budget, wentOn);
  if (found.kind === "unknown") return null;
  if (found.kind === "fit") return { time: found.time, censoredAt: null, grid: 0, samples: found.samples, ...about };
  return { time: null, censoredAt: found.time, grid: 0, samples: samplesUntil(cell, found.time), ...about };
}

/** Samples that were taken until a limit that may lie before the end. */
function samplesUntil(cell, limit) {
  if (cell.samples === null || !cell.training_clock_s) return cell.samples;
  return cell.samples * Math.min(1, limit / cell.training_clock_s);
}

function gridOf(cell, time, samples) {
  if (cell.evaluate_every_samples === null || !samples) return 0;
  return time * Math.min(1, Math.max(cell.evaluate_every_samples, cell.global_batch || 0) / samples);
}

/** One arrival a seed; one node alone may stand there twice, under unlike training limits. */
function bySeed(cells, target) {
  const found = {};
  for (const cell of cells) {
    const arrival = arrivalAt(cell, target), known = found[cell.seed];
    if (arrival !== null && (known === undefined || saysMore(arrival, known))) found[cell.seed] = arrival;
  }
  return found;
}

function saysMore(one, known) {
  if (known.time !== null) return false;
  return one.time !== null || atLeast(one) > atLeast(known);
}

/** As bySeed, for an arm that no link concerns: its runs at several bandwidths are one run but for noise. */
function bySeedOverBandwidths(cells, target) {
  const parts = [...groupBy(cells, (cell) => cell.bandwidth_bps).values()].map((part) => bySeed(part, target));
  const found = {};
  for (const seed of new Set(parts.flatMap((part) => Object.keys(part)))) {
    const alike = parts.filter((part) => seed in part).map((part) => part[seed]), centre = estimate(alike);
    const reached = Number.isFinite(centre.value);
    const worst = alike.reduce((one, other) => (other.timingVariance > one.timingVariance ? other : one));
    found[seed] = {
      ...worst,
      time: reached ? centre.value : null,
      censoredAt: reached ? null : centre.atLeast,
      grid: reached ? Math.min(...alike.map((arrival) => arrival.grid)) : 0,
      firstCrossing: reached && alike.some((arrival) => arrival.firstCrossing),
    };
  }
  return found;
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

/** One point an arm and bandwidth: {arm, bandwidth, limit, cells, seeds, estimate, numComposed, firstCrossing, hostBound}, bandwidths rising. */
function pointsOf(cells, target) {
  const points = [];
  for (const [arm, ofArm] of groupBy(cells, (cell) => cell.arm)) {
    const limit = LIMITS.includes(ofArm[0].role);
    const parts = limit ? [[null, ofArm]] : [...groupBy(ofArm, (cell) => cell.bandwidth_bps)];
    for (const [bandwidth, part] of parts) {
      const seeds = limit ? bySeedOverBandwidths(part, target) : bySeed(part, target);
      const arrivals = Object.values(seeds);
      if (!arrivals.length) continue;
      const numComposed = part.filter((cell) => cell.composed && cell.status === "done").length;
      const firstCrossing = arrivals.some((arrival) => arrival.firstCrossing);
      const hostBound = part.some((cell) => cell.host_bound);
      points.push({ arm, bandwidth, limit, cells: part, seeds, estimate: estimate(arrivals), numComposed, firstCrossing, hostBound });
    }
  }
  const order = (point) => (point.bandwidth === null ? Infinity : point.bandwidth);
  return points.sort((a, b) => a.arm - b.arm || order(a) - order(b));
}
