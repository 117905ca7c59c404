"use strict";
// A report whose sweep runs: asks for newer records, and shows them without losing what the reader has chosen.

const ASK_EVERY_MS = 2000;
const PLACE = ["experiment", "model", "dataset", "setting", "rtt", "bandwidth"]; // filters that say which cells are shown

let version = document.body.dataset.records; // of the records that are shown
let following = true; // shown is what trains, until the reader looks at something else

/** What of the reader's choices is not in the state, and what the state holds by numbers that change. */
function choices() {
  const { group } = state, focused = document.activeElement;
  return {
    group: nameOf(group), bandwidth: state.bandwidth, rtt: state.rtt, target: state.target, recorded: state.target === group.target, page: state.table.page,
    controls: controlsKey(), open: [...document.querySelectorAll("#cells-body tr.open")].map((row) => cellName(report.cells[row.dataset.cell])),
    focus: focused.id ? `#${focused.id}` : null, arm: focused.dataset.arm === undefined ? null : armName(Number(focused.dataset.arm)),
    row: focused.closest("#cells-body tr[data-cell]") ? cellName(report.cells[focused.closest("tr").dataset.cell]) : null,
  };
}

function nameOf(group) {
  return [report.experiments[group.experiment], group.model, group.dataset, group.words].join("\n");
}

function cellName(cell) {
  return `${report.experiments[cell.experiment]} ${cell.id}`;
}

/** Equal as long as every filter offers the same. */
function controlsKey() {
  const { group } = state;
  return JSON.stringify([report.groups.map(nameOf), nameOf(group), rttsOf(group), bandwidthsOf(group), armsOf(group).map((arm) => report.arms[arm])]);
}

function showNewer(payload) {
  const before = choices();
  report = readReport(payload);
  const group = report.groups.find((one) => nameOf(one) === before.group);
  chooseGroup(group || largestGroup());
  follow();
  if (nameOf(state.group) === before.group && !before.recorded) state.target = before.target;
  state.table.page = before.page;
  const alike = controlsKey() === before.controls && state.bandwidth === before.bandwidth && state.rtt === before.rtt;
  if (alike) fillTarget(); // an open list of choices stays open
  else fillControls();
  drawSubtitle();
  drawAll(true);
  for (const row of document.querySelectorAll("#cells-body tr[data-cell]")) {
    const name = cellName(report.cells[row.dataset.cell]), button = row.querySelector(".expand");
    if (before.open.includes(name)) toggleDetails(row, button, report.cells[row.dataset.cell]);
    if (before.row === name) button.focus();
  }
  const chip = before.arm === null ? null : [...document.querySelectorAll("#arms input")].find((box) => armName(Number(box.dataset.arm)) === before.arm);
  const focus = chip || (before.focus && document.querySelector(before.focus));
  if (focus && focus !== document.activeElement) focus.focus({ preventScroll: true });
}

/** Look where a cell trains. */
function follow() {
  const running = report.cells.filter((cell) => cell.status === "running");
  const shown = (cell) => state.group.cells.includes(cell) && (cell.needs_no_link || (cell.bandwidth_bps === state.bandwidth && cell.rtt_s === state.rtt));
  if (!following || !running.length || running.some(shown)) return;
  const [cell] = running, group = state.group.cells.includes(cell) ? state.group : report.groups.find((one) => one.cells.includes(cell));
  if (group !== state.group) chooseGroup(group);
  if (!cell.needs_no_link) Object.assign(state, { bandwidth: cell.bandwidth_bps, rtt: cell.rtt_s ?? state.rtt });
}

function runningWords(cell) {
  const samples = cell.samples_at && cell.samples_at[cell.samples_at.length - 1];
  const share = samples && cell.limit_samples ? `, ${Math.round((100 * samples) / cell.limit_samples)} % of at most ${cell.limit_samples} samples` : "";
  return `${armLabel(cell.arm)} at ${linkWords(cell)}, seed ${cell.seed}: ${cell.reason}${share}`;
}

/** What is being done; or that nobody answers any more. */
function drawLive(trouble) {
  const { problem, unreadable } = report.live, running = report.cells.filter((cell) => cell.status === "running");
  const undone = [...groupBy(report.cells.filter((cell) => !["done", "running", "missing"].includes(cell.status)), (cell) => cell.status)];
  const done = report.cells.filter((cell) => cell.status === "done").length;
  const words = [`${done} of ${plural(report.cells.length, "cell")} done`, ...undone.map(([status, cells]) => `${cells.length} ${status}`)];
  const warnings = [trouble, problem && `What was seen last is shown: ${problem}`, ...unreadable.map((text) => `Left out: ${text}`)].filter(Boolean);
  byId("live-words").replaceChildren(make("p", {}, words.join(" \u00b7 ")), ...running.map((cell) => make("p", {}, runningWords(cell))), ...warnings.map((text) => make("p", { class: "warning" }, text)));
}

async function ask() {
  let answer, newer;
  try {
    answer = await fetch("payload.json", { cache: "no-store", headers: { "If-None-Match": `"${version}"` } });
    if (answer.status === 200) newer = await answer.json();
    else if (answer.status !== 304) throw new Error(`${answer.status}: ${await answer.text()}`);
  } catch (error) {
    document.body.dataset.lost = "";
    return drawLive(`Nothing newer: bwbench watch does not answer (${error.message}). Start it again on the same port, and this page goes on.`);
  }
  if (newer) {
    version = answer.headers.get("ETag").replaceAll('"', "");
    showNewer(newer);
  }
  delete document.body.dataset.lost;
  drawLive();
}

/** Only where somebody looks: what is drawn here takes processor time that cells may need. */
async function askAgain() {
  try {
    if (!document.hidden) await ask();
  } finally {
    setTimeout(askAgain, ASK_EVERY_MS);
  }
}

function setFollowing(wanted) {
  following = byId("following").checked = wanted;
  if (!wanted) return;
  follow();
  fillControls();
  refresh();
}

function beginLive() {
  const box = make("input", { type: "checkbox", id: "following", checked: true, onchange: () => setFollowing(box.checked) });
  byId("live").append(make("div", { id: "live-words" }), make("label", { class: "check" }, box, "show the link of the cell that trains"));
  byId("live").hidden = false;
  document.querySelector(".filters").addEventListener("change", (event) => { if (PLACE.includes(event.target.id)) setFollowing(false); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  setFollowing(true);
  drawLive();
  setTimeout(askAgain, ASK_EVERY_MS);
}

beginLive();
