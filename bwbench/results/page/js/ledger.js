"use strict";
// Where a step's time goes: bars that are elements, so that they can be read without seeing them.

/** A bar of one step: its parts side by side, as shares of `longest` seconds. */
function ledgerBar(means, longest) {
  const total = means.reduce((sum, value) => sum + value, 0);
  const words = means.map((value, part) => [value, part]).filter(([value]) => value > 0.005 * total);
  const text = words.map(([value, part]) => `${report.parts[part]} ${seconds(value)}`).join(", ");
  const bar = make("div", { class: "bar", role: "img", "aria-label": text || "nothing recorded", title: text });
  bar.style.width = `${(100 * total) / longest}%`;
  means.forEach((value, part) => {
    if (value <= 0) return;
    const piece = make("span", { class: "piece" });
    piece.style.width = `${(100 * value) / total}%`;
    piece.style.background = report.part_colors[part];
    bar.append(piece);
  });
  return bar;
}

function drawLedgers(cells) {
  const rows = [];
  for (const [arm, ofArm] of groupBy(cells.filter((cell) => cell.status === "done" && cell.ledger), (cell) => cell.arm)) {
    const means = report.parts.map((_, part) => mean(ofArm.map((cell) => cell.ledger.mean_s[part])));
    rows.push({ arm, means, total: mean(ofArm.map((cell) => cell.ledger.step_s)), estimated: ofArm.some((cell) => cell.ledger.estimated) });
  }
  rows.sort((a, b) => a.total - b.total || a.arm - b.arm);
  const longest = Math.max(...rows.map((row) => row.total));
  const list = make("ul", { class: "ledger" }, ...rows.map((row) =>
    make("li", {},
      make("span", { class: "ledger-name" }, swatch(row.arm), make("span", {}, armLabel(row.arm))),
      make("span", { class: "ledger-track" }, ledgerBar(row.means, longest)),
      make("span", { class: "ledger-total number" }, `${seconds(row.total)}${row.estimated ? " *" : ""}`))));
  const used = report.parts.map((_, part) => rows.some((row) => row.means[part] > 0));
  const legend = make("ul", { class: "legend" }, ...report.parts.flatMap((name, part) => {
    if (!used[part]) return [];
    const box = make("span", { class: "box", "aria-hidden": "true" });
    box.style.background = report.part_colors[part];
    return [make("li", {}, box, name)];
  }));
  const note = rows.some((row) => row.estimated) ? "* torch's own DDP waits inside C++: there the split between computing and waiting is an estimate." : "";
  byId("ledgers").replaceChildren(...(rows.length ? [legend, list, make("p", { class: "note" }, note)] : [make("p", { class: "note" }, "No step was recorded for this choice.")]));
}
