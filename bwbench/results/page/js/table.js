"use strict";
// The cells, a page at a time: sorted by their headings, filtered by words and state, with details on click.

const PAGE_ROWS = 25;

// What is asked for stands beside its arm, where a phone shows it.
const TABLE_COLUMNS = [
  { key: "arm", name: "arm", value: (cell) => armLabel(cell.arm), show: (cell) => armTag(cell.arm) },
  { key: "time", name: "to target", number: true, value: (cell) => timeKey(cell), show: timeWords },
  { key: "status", name: "state", value: (cell) => cell.status, show: stateMarks },
  { key: "bandwidth_bps", name: "link asked", number: true, value: (cell) => cell.bandwidth_bps ?? Infinity, show: (cell) => linkWords(cell) },
  { key: "seed", name: "seed", number: true, value: (cell) => cell.seed, show: (cell) => `${cell.seed}` },
  { key: "achieved", name: "achieved", number: true, value: (cell) => achievedShare(cell) ?? Infinity, show: achievedWords },
  { key: "final_metric", name: "final", number: true, value: (cell) => cell.final_metric ?? -Infinity, show: (cell) => metricWords(cell.final_metric, cell.metric) },
  { key: "wire", name: "on the wire", number: true, value: (cell) => wireBytes(cell) ?? -Infinity, show: (cell) => bytes(wireBytes(cell)) },
  { key: "step", name: "step", value: (cell) => (cell.ledger ? cell.ledger.step_s : Infinity), show: stepBar },
];

function linkWords(cell) {
  if (cell.bandwidth_bps === null) return cell.role === REFERENCE ? "none" : "unshaped";
  return cell.rtt_s === null ? rate(cell.bandwidth_bps) : `${rate(cell.bandwidth_bps)}, ${shortTime(cell.rtt_s)}`;
}

function achievedShare(cell) {
  const link = cell.link_facts;
  return link && link.asked_goodput_bps && link.achieved_goodput_bps ? link.achieved_goodput_bps / link.asked_goodput_bps : null;
}

function achievedWords(cell) {
  const share = achievedShare(cell);
  return share === null ? DASH : `${(100 * share).toFixed(1)} %`;
}

function wireBytes(cell) {
  return cell.wire_bytes_to_target ?? cell.wire_bytes;
}

function timeKey(cell) {
  const arrival = arrivalAt(cell, state.target);
  return arrival === null ? Infinity : arrival.time === null ? 1e12 + arrival.censoredAt : arrival.time;
}

function timeWords(cell) {
  const arrival = arrivalAt(cell, state.target);
  if (arrival === null) return DASH;
  return arrival.time === null ? `> ${seconds(arrival.censoredAt)}` : seconds(arrival.time) + crossingMark(arrival.firstCrossing);
}

function stateMarks(cell) {
  const marks = make("span", { class: "marks" });
  if (cell.status !== "done") marks.append(make("span", { class: `mark ${{ running: "composed", missing: "" }[cell.status] ?? "bad"}` }, cell.status));
  else if (cell.composed) marks.append(make("span", { class: "mark composed" }, "composed"));
  const arrival = arrivalAt(cell, state.target);
  if (arrival !== null && arrival.time === null) marks.append(make("span", { class: "mark censored" }, "censored"));
  return marks.childElementCount ? marks : "done";
}

function stepBar(cell) {
  if (!cell.ledger) return DASH;
  return make("span", { class: "step" }, make("span", { class: "step-track" }, ledgerBar(cell.ledger.mean_s, cell.ledger.step_s)), make("span", { class: "number" }, seconds(cell.ledger.step_s)));
}

/** What a reader searches in: every word of a row. */
function searchText(cell) {
  if (!cell.search) {
    cell.search = [armName(cell.arm), armLabel(cell.arm), cell.id, cell.slug, cell.status, cell.link, cell.model, cell.dataset, cell.algorithm, cell.collective,
      cell.compression, report.experiments[cell.experiment], cell.composed ? "composed" : "whole"].join(" ").toLowerCase();
  }
  return cell.search;
}

function tableCells() {
  const { text, status, bandwidth, everything } = state.table;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (everything ? report.cells : chosenCells()).filter((cell) =>
    (!status || matchesState(cell, status)) && (bandwidth === "" || cell.bandwidth_bps === Number(bandwidth)) && words.every((word) => searchText(cell).includes(word)));
}

function matchesState(cell, status) {
  if (status === "composed") return cell.status === "done" && Boolean(cell.composed);
  if (status === "whole") return cell.status === "done" && !cell.composed;
  if (status === "not done") return cell.status !== "done";
  const arrival = arrivalAt(cell, state.target);
  return arrival !== null && (status === "censored") === (arrival.time === null);
}

function drawTable() {
  const { sort, falling } = state.table, column = TABLE_COLUMNS.find((one) => one.key === sort);
  const found = tableCells().map((cell) => [column.value(cell), cell]);
  const compare = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
  found.sort((a, b) => (falling ? compare(b[0], a[0]) : compare(a[0], b[0])) || a[1].index - b[1].index);
  const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
  state.table.page = Math.min(state.table.page, pages - 1);
  const first = state.table.page * PAGE_ROWS, shown = found.slice(first, first + PAGE_ROWS);
  byId("cells-head").replaceChildren(headRow());
  byId("cells-body").replaceChildren(...shown.map(([, cell]) => bodyRow(cell)));
  byId("cells-count").textContent = found.length ? `${first + 1}\u2013${first + shown.length} of ${plural(found.length, "cell")}` : "No cell matches.";
  // Not `disabled`: whoever turned the last page by keyboard would lose the place.
  byId("cells-previous").setAttribute("aria-disabled", String(state.table.page === 0));
  byId("cells-next").setAttribute("aria-disabled", String(state.table.page >= pages - 1));
}

function headRow() {
  const headings = TABLE_COLUMNS.map(({ key, name, number }) => {
    const sorted = state.table.sort === key, direction = state.table.falling ? "descending" : "ascending";
    const button = make("button", { type: "button", class: "sort", "data-sort": key, onclick: () => sortBy(key) }, name, make("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (state.table.falling ? "\u25be" : "\u25b4") : ""));
    return make("th", { scope: "col", class: number ? "number" : null, "aria-sort": sorted ? direction : "none" }, button);
  });
  return make("tr", {}, make("th", { scope: "col" }, make("span", { class: "hidden" }, "details")), ...headings);
}

function sortBy(key) {
  state.table.falling = state.table.sort === key && !state.table.falling;
  state.table.sort = key;
  drawTable();
  document.querySelector(`[data-sort="${key}"]`).focus();
}

function bodyRow(cell) {
  const button = make("button", { type: "button", class: "expand", "aria-expanded": "false", "aria-label": `details of ${cell.slug}` }, "\u25b8");
  const row = make("tr", { "data-cell": cell.index }, make("td", {}, button), ...TABLE_COLUMNS.map(({ number, show }) => make("td", { class: number ? "number" : null }, show(cell))));
  button.addEventListener("click", (event) => { event.stopPropagation(); toggleDetails(row, button, cell); });
  row.addEventListener("click", () => { if (!String(getSelection())) toggleDetails(row, button, cell); });
  return row;
}

function toggleDetails(row, button, cell) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  row.classList.toggle("open", !open);
  if (open) row.nextElementSibling.remove();
  else row.after(make("tr", { class: "details" }, make("td", { colspan: TABLE_COLUMNS.length + 1 }, detailsOf(cell))));
}

function detailsOf(cell) {
  const link = cell.link_facts || {}, pairs = (rows) => make("dl", {}, ...rows.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const panel = (title, ...content) => make("section", { class: "panel" }, make("h3", {}, title), ...content);
  const asked = (one, other, write) => (one === undefined && other === undefined ? null : `${one === undefined ? DASH : write(one)} \u2192 ${other === undefined ? DASH : write(other)}`);
  const panels = [
    panel("Cell", pairs([["cell", `${cell.slug}-${cell.id}`], ["experiment", report.experiments[cell.experiment]], ["state", [cell.status, cell.reason].filter(Boolean).join(": ")],
      ["value", cell.status !== "done" ? null : cell.composed ? "composed of a training without the link and steps timed on it" : "measured whole"],
      ["method", [cell.algorithm, cell.collective, cell.compression].join(" \u00d7 ")], ["model, data", `${cell.model} on ${cell.dataset}`],
      ["batch", `${cell.batch_size}${cell.accumulate > 1 ? ` \u00d7 ${cell.accumulate} accumulated` : ""} \u00d7 ${plural(cell.nodes, "node")} = ${cell.global_batch}`],
      ["trained", cell.samples === null ? null : `${cell.samples} samples in ${cell.steps} steps, ${seconds(cell.training_clock_s)}`], ["test, at the end", cell.test_metric === null ? null : metricWords(cell.test_metric, cell.metric)],
      ["test, at the arrival", cell.test_metric_at_arrival === null ? null : `${metricWords(cell.test_metric_at_arrival, cell.target_metric)}, where validation reaches ${metricWords(cell.target_value, cell.target_metric)}`], ["wall time", cell.wall_s === null ? null : seconds(cell.wall_s)]])),
    panel("Link: asked \u2192 achieved", pairs([["link", cell.link], ["goodput", asked(link.asked_goodput_bps, link.achieved_goodput_bps, rate)], ["worst pair", link.worst_goodput_bps === undefined ? null : rate(link.worst_goodput_bps)],
      ["round trip", asked(link.asked_rtt_s, link.achieved_rtt_s, shortTime)], ["longest", link.worst_rtt_s === undefined ? null : shortTime(link.worst_rtt_s)],
      ["verdict", link.verdicts ? [...new Set(link.verdicts)].join(", ") : null], ["by", link.backend], ["lateness p99", link.lateness_p99_s ? shortTime(link.lateness_p99_s) : null]])),
    panel("Where a step's time goes", cell.ledger ? ledgerList(cell.ledger) : "not recorded"),
    panel("Environment", cell.environment ? pairs(Object.entries(cell.environment).map(([name, value]) => [name.replace("_bytes", ""), name.endsWith("_bytes") ? bytes(value) : `${value}`])) : "not recorded"),
    panel("End of the log", cell.log ? make("pre", { tabindex: "0", "aria-label": `log of ${cell.slug}` }, cell.log) : make("p", { class: "note" }, cell.composed ? "A composed cell has no log of its own." : "No log was kept.")),
  ];
  panels[4].classList.add("wide");
  return make("div", { class: "panels" }, ...panels);
}

function ledgerList(ledger) {
  const rows = ledger.mean_s.map((value, part) => [value, part]).filter(([value]) => value > 0);
  const list = make("dl", { class: "parts" }, ...rows.flatMap(([value, part]) => {
    const box = make("span", { class: "box", "aria-hidden": "true" });
    box.style.background = report.part_colors[part];
    return [make("dt", {}, box, report.parts[part]), make("dd", {}, `${seconds(value)}, ${((100 * value) / ledger.step_s).toFixed(1)} %`)];
  }));
  const notes = [`mean of ${plural(ledger.num_steps, "step")}`, ledger.estimated ? "split between computing and waiting estimated" : null, ledger.peers_reason || null,
    ledger.off_by ? `parts add up only within ${(100 * ledger.off_by).toFixed(1)} %` : null];
  return make("div", {}, ledgerBar(ledger.mean_s, ledger.step_s), list, make("p", { class: "note" }, notes.filter(Boolean).join("; ")));
}
