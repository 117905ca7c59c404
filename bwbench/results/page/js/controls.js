"use strict";
// The filters: built from the records, read into the state.

const UNITS = { "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9 };

/** Options of a select; it is hidden with its label where there is nothing to choose. */
function fillSelect(id, options, chosen, alwaysShown = false) {
  const select = byId(id);
  select.replaceChildren(...options.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
  select.value = chosen;
  select.closest(".field").hidden = options.length < 2 && !alwaysShown;
}

function unique(values) {
  return [...new Set(values)];
}

function groupsLike({ experiment, model, dataset }) {
  return report.groups.filter((group) => (experiment === undefined || group.experiment === experiment) && (model === undefined || group.model === model) && (dataset === undefined || group.dataset === dataset));
}

function fillControls() {
  const { group } = state, { experiment, model, dataset } = group;
  const own = (text) => [String(text), String(text)];
  fillSelect("experiment", unique(report.groups.map((one) => one.experiment)).map((index) => [String(index), report.experiments[index]]), String(experiment));
  fillSelect("model", unique(groupsLike({ experiment }).map((one) => one.model)).map(own), model, true);
  fillSelect("dataset", unique(groupsLike({ experiment, model }).map((one) => one.dataset)).map(own), dataset, true);
  fillSelect("setting", groupsLike({ experiment, model, dataset }).map((one) => [String(report.groups.indexOf(one)), one.words || "all"]), String(report.groups.indexOf(group)));
  fillSelect("rtt", rttsOf(group).map((rtt) => [String(rtt), `RTT ${shortTime(rtt)}`]), String(state.rtt));
  fillSelect("bandwidth", bandwidthsOf(group).map((bps) => [String(bps), bps === null ? "unshaped link" : rate(bps)]), String(state.bandwidth), true);
  fillSelect("cells-bandwidth", [["", "all"], ...bandwidthsOf(group).filter((bps) => bps !== null).map((bps) => [String(bps), rate(bps)])], state.table.bandwidth);
  if (byId("cells-bandwidth").value === "") state.table.bandwidth = "";
  fillArms();
  fillTarget();
}

function fillArms() {
  byId("arms").replaceChildren(...armsOf(state.group).map((arm) => {
    const box = make("input", { type: "checkbox", checked: isShown(arm), "data-arm": arm, onchange: () => showArm(arm, box.checked) });
    return make("label", { class: "chip", title: armName(arm) }, box, swatch(arm), make("span", {}, armLabel(arm)));
  }));
}

function showArm(arm, shown) {
  if (shown) state.hiddenArms.delete(armName(arm));
  else state.hiddenArms.add(armName(arm));
  refresh();
}

function showAllArms(shown) {
  for (const arm of armsOf(state.group)) {
    if (shown) state.hiddenArms.delete(armName(arm));
    else state.hiddenArms.add(armName(arm));
  }
  fillArms();
  refresh();
}

function fillTarget() {
  const range = targetRange(state.group), slider = byId("target");
  slider.closest(".field").hidden = range === null;
  if (range === null) return;
  if (state.target === null) state.target = range.anchor;
  const { metric, target } = state.group, percent = metric === "accuracy" ? 100 : 1;
  byId("target-label").textContent = `Target ${metric === "accuracy" ? "accuracy (%)" : metric}`;
  slider.min = Math.round((range.min - range.anchor) / range.step);
  slider.max = Math.round((range.max - range.anchor) / range.step);
  const typed = byId("target-number");
  Object.assign(typed, { min: range.min * percent, max: range.max * percent, step: Number((range.step * percent).toPrecision(6)) });
  byId("target-reset").hidden = target === null;
  showTarget(range);
}

function showTarget(range) {
  const { metric } = state.group, slider = byId("target"), typed = byId("target-number");
  slider.value = Math.round((state.target - range.anchor) / range.step);
  slider.setAttribute("aria-valuetext", metricWords(state.target, metric));
  if (document.activeElement !== typed) typed.value = Number((state.target * (metric === "accuracy" ? 100 : 1)).toPrecision(6));
  byId("target-reset").disabled = state.target === state.group.target;
}

function moveTarget(value) {
  const range = targetRange(state.group);
  state.target = snappedTarget(range, Math.min(range.max, Math.max(range.min, value)));
  showTarget(range);
  refresh();
}

function readLink() {
  state.link.bandwidth = Number(byId("my-bandwidth").value) * UNITS[byId("my-unit").value];
  state.link.latency = Number(byId("my-latency").value || NaN) / 1e3;
}

/** The reader's link begins as the one in the middle of what was measured. */
function suggestLink() {
  const bandwidth = state.bandwidth || 10e6, unit = bandwidth >= 1e6 ? "Mbit/s" : "kbit/s";
  byId("my-bandwidth").value = Number((bandwidth / UNITS[unit]).toPrecision(6));
  byId("my-unit").value = unit;
  byId("my-latency").value = state.rtt === null ? 0 : Number((state.rtt * 500).toPrecision(4));
  readLink();
}

function switchGroup(wanted) {
  const found = groupsLike(wanted), { words } = state.group;
  chooseGroup(found.find((group) => group.words === words) || found[0]);
  fillControls();
  suggestLink();
  refresh();
}

function listen() {
  const on = (id, event, action) => byId(id).addEventListener(event, action);
  on("experiment", "change", (e) => switchGroup({ experiment: Number(e.target.value) }));
  on("model", "change", (e) => switchGroup({ experiment: state.group.experiment, model: e.target.value }));
  on("dataset", "change", (e) => switchGroup({ experiment: state.group.experiment, model: state.group.model, dataset: e.target.value }));
  on("setting", "change", (e) => { chooseGroup(report.groups[Number(e.target.value)]); fillControls(); suggestLink(); refresh(); });
  on("rtt", "change", (e) => { state.rtt = Number(e.target.value); suggestLink(); refresh(); });
  on("bandwidth", "change", (e) => { state.bandwidth = e.target.value === "null" ? null : Number(e.target.value); refresh(); });
  on("target", "input", (e) => { const range = targetRange(state.group); moveTarget(range.anchor + Number(e.target.value) * range.step); });
  on("target-number", "change", (e) => moveTarget(Number(e.target.value) / (state.group.metric === "accuracy" ? 100 : 1)));
  on("target-reset", "click", () => { moveTarget(state.group.target); byId("target").focus(); });
  on("arms-all", "click", () => showAllArms(true));
  on("arms-none", "click", () => showAllArms(false));
  for (const id of ["my-bandwidth", "my-unit", "my-latency"]) on(id, "input", () => { readLink(); refresh({ table: false }); });
  on("log-time", "change", (e) => { state.logTime = e.target.checked; refresh({ table: false }); });
  const table = (change) => (e) => { change(e.target); state.table.page = 0; drawTable(); };
  on("cells-text", "input", table((field) => (state.table.text = field.value)));
  on("cells-state", "change", table((field) => (state.table.status = field.value)));
  on("cells-bandwidth", "change", table((field) => (state.table.bandwidth = field.value)));
  on("cells-everything", "change", table((field) => (state.table.everything = field.checked)));
  const turn = (pages) => ({ target }) => { if (target.getAttribute("aria-disabled") !== "true") { state.table.page += pages; drawTable(); } };
  on("cells-previous", "click", turn(-1));
  on("cells-next", "click", turn(1));
  for (const radio of document.querySelectorAll("[name=theme]")) radio.addEventListener("change", () => setTheme(radio.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { fillArms(); refresh(); });
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  fillArms();
  refresh();
}
