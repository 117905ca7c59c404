"use strict";
// The records, as objects, and what the reader has chosen. All else on the page follows from these two.

let report = null;

const state = {
  group: null, // of comparable cells: experiment, model, data set and setting in one
  rtt: null,
  bandwidth: null,
  target: null,
  logTime: null, // of the curves; null chooses by their lengths
  hiddenArms: new Set(), // by name, so that a choice outlives a change of experiment
  link: { bandwidth: null, latency: null }, // of the reader: bit/s, one way in seconds
  table: { text: "", status: "", bandwidth: "", everything: false, sort: "bandwidth_bps", falling: false, page: 0 },
};

function readReport(payload) {
  const cells = payload.cells.map((row, index) => {
    const cell = { index };
    payload.columns.forEach((name, column) => (cell[name] = row[column]));
    for (const name of ["samples_at", "values", "clocks", "link_facts", "environment", "log"]) {
      cell[name] = pooled(payload, name, cell[name]);
    }
    return cell;
  });
  const groups = payload.groups.map((group) => ({ ...group, cells: group.cells.map((index) => cells[index]) }));
  return { ...payload, cells, groups };
}

function pooled(payload, name, index) {
  return index === null ? null : payload.pools[name][index];
}

/** As recorded: what remembers an arm goes by it. */
function armName(arm) {
  return report.arms[arm].name;
}

/** What an arm is called where people read, as short as the other arms of the page leave it. */
function armLabel(arm) {
  return report.arms[arm].label;
}

function chooseGroup(group) {
  state.group = group;
  const rtts = rttsOf(group), asked = group.cells.map((cell) => cell.rtt_s).filter((rtt) => rtts.includes(rtt));
  if (!rtts.includes(state.rtt)) state.rtt = rtts.length ? mostCommon(asked) : null;
  const bandwidths = bandwidthsOf(group);
  if (!bandwidths.includes(state.bandwidth)) state.bandwidth = bandwidths[Math.floor((bandwidths.length - 1) / 2)] ?? null;
  state.target = group.target;
  state.table.page = 0;
}

function mostCommon(values) {
  const counts = [...groupBy(values, (value) => value)].map(([value, alike]) => [alike.length, value]);
  return counts.sort((a, b) => b[0] - a[0] || a[1] - b[1])[0][1];
}

/** Round trips that the group's links were asked for, rising. */
function rttsOf(group) {
  const found = new Set(group.cells.filter((cell) => !cell.needs_no_link).map((cell) => cell.rtt_s));
  return [...found].filter((rtt) => rtt !== null).sort((a, b) => a - b);
}

function bandwidthsOf(group) {
  const found = new Set(group.cells.filter((cell) => !cell.needs_no_link).map((cell) => cell.bandwidth_bps));
  return [...found].sort((a, b) => (a === null) - (b === null) || a - b);
}

function armsOf(group) {
  return [...new Set(group.cells.map((cell) => cell.arm))].sort((a, b) => armRank(a) - armRank(b));
}

/** The two limits first, then by name. */
function armRank(arm) {
  const limit = LIMITS.indexOf(report.arms[arm].role);
  return limit >= 0 ? limit - LIMITS.length : arm;
}

function isShown(arm) {
  return !state.hiddenArms.has(armName(arm));
}

/** The group's cells at one round trip, of the arms that are shown. */
function chosenCells(rtt = state.rtt) {
  return state.group.cells.filter((cell) => isShown(cell.arm) && (cell.rtt_s === null || cell.rtt_s === rtt));
}

/** Targets that the slider offers: {min, max, step}, with the recorded one among them; null without a metric. */
function targetRange(group) {
  const curves = group.cells.filter((cell) => cell.status === "done" && cell.values && cell.values.length);
  if (!curves.length) return null;
  const lower = group.metric === "loss", best = lower ? Math.min : Math.max, worst = lower ? Math.max : Math.min;
  const reached = curves.map((cell) => best(...cell.values.filter((value) => value !== null)));
  const begun = best(...curves.map((cell) => cell.values[0]));
  const ends = [begun, best(...reached), worst(...reached), group.target].filter((value) => value !== null);
  const top = lower ? Math.min(...ends) : Math.max(...ends);
  const step = 10 ** (Math.floor(Math.log10(Math.max(Math.abs(top - begun), 1e-6))) - 2);
  const anchor = group.target === null ? top : group.target;
  const stepsTo = (value, round) => anchor + round((value - anchor) / step) * step;
  const low = stepsTo(Math.min(begun, top), Math.ceil), high = stepsTo(Math.max(begun, top), Math.floor);
  const easiest = lower ? 0 : step, hardest = lower ? step : 0; // what was met before the first step takes no time
  return { min: Math.min(low + easiest, anchor), max: Math.max(high - hardest, anchor), step, anchor };
}

/** The slider counts in steps from the recorded target, so that this very number is one of its positions. */
function snappedTarget(range, value) {
  const steps = Math.round((value - range.anchor) / range.step);
  return steps === 0 ? range.anchor : Number((range.anchor + steps * range.step).toPrecision(8));
}
