"use strict";
// Colours of the two themes, and how an arm is drawn: alike in every chart, list and table.

const SVG = "http://www.w3.org/2000/svg";
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function armColor(arm) {
  return report.arms[arm][isDark() ? "dark" : "light"];
}

function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A line with the arm's dashes and marker, as in the charts. */
function swatch(arm) {
  const { symbol, dash } = report.arms[arm], color = armColor(arm);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 34 14");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M1 7H33");
  line.setAttribute("stroke", color);
  line.setAttribute("stroke-width", "2");
  if (dash !== "solid") line.setAttribute("stroke-dasharray", dash.replaceAll("px", ""));
  const marker = document.createElementNS(SVG, "path");
  marker.setAttribute("d", markerPath(symbol));
  marker.setAttribute("fill", color);
  marker.setAttribute("transform", "translate(17 7)");
  svg.append(line, marker);
  return svg;
}

/** An arm's label behind its swatch. */
function armTag(arm) {
  return make("span", { class: "arm" }, swatch(arm), make("span", { title: armName(arm) }, armLabel(arm)));
}

function markerPath(symbol) {
  const corners = (count, radius, turn, inner) =>
    `M${[...Array(count * (inner ? 2 : 1)).keys()]
      .map((i) => {
        const angle = turn + (2 * Math.PI * i) / (count * (inner ? 2 : 1)), r = inner && i % 2 ? inner : radius;
        return `${(r * Math.sin(angle)).toFixed(2)} ${(-r * Math.cos(angle)).toFixed(2)}`;
      })
      .join("L")}Z`;
  const turns = { up: 0, right: Math.PI / 2, down: Math.PI, left: -Math.PI / 2 };
  if (symbol.startsWith("triangle-")) return corners(3, 5.6, turns[symbol.slice(9)]);
  const paths = {
    square: () => corners(4, 5.8, Math.PI / 4),
    diamond: () => corners(4, 5.6, 0),
    "diamond-tall": () => "M0 -6.2L3.6 0L0 6.2L-3.6 0Z",
    pentagon: () => corners(5, 5.4, 0),
    hexagon: () => corners(6, 5.2, 0),
    hexagon2: () => corners(6, 5.2, Math.PI / 6),
    octagon: () => corners(8, 5.2, Math.PI / 8),
    star: () => corners(5, 6, 0, 2.6),
    cross: () => "M-1.8 -5H1.8V-1.8H5V1.8H1.8V5H-1.8V1.8H-5V-1.8H-1.8Z",
    x: () => "M-5 -2.6L-2.6 -5L0 -2.4L2.6 -5L5 -2.6L2.4 0L5 2.6L2.6 5L0 2.4L-2.6 5L-5 2.6L-2.4 0Z",
  };
  return (paths[symbol] || (() => "M-4.6 0A4.6 4.6 0 1 1 4.6 0A4.6 4.6 0 1 1 -4.6 0Z"))();
}

/** What all charts have in common. */
function baseLayout(height) {
  const ink = themeColor("ink"), faint = themeColor("faint"), grid = themeColor("grid");
  const axis = { gridcolor: grid, zeroline: false, linecolor: faint, tickcolor: faint, ticks: "outside", ticklen: 4,
                 tickfont: { size: 12 }, fixedrange: true, automargin: true };
  return {
    height, autosize: true, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 13, color: ink }, margin: { l: 62, r: 16, t: 12, b: 52 }, hovermode: "closest",
    hoverlabel: { bgcolor: themeColor("raised"), bordercolor: faint, font: { family: FONT, size: 13, color: ink }, align: "left" },
    xaxis: { ...axis }, yaxis: { ...axis }, shapes: [], annotations: [],
  };
}

/** A title beside an axis; `text` is not markup. */
function axisTitle(text) {
  return { text: plotText(text), font: { size: 13 }, standoff: 10 };
}

const CHART_CONFIG = { displayModeBar: false, responsive: true, displaylogo: false };

/** Ticks of a logarithmic axis between two values: 1, 2, 5, 10, and all digits where the axis is short. */
function logTicks(low, high) {
  const decades = Math.log10(high / low), ticks = [];
  const leading = decades < 0.8 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : decades < 3 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const digit of leading) {
      const value = digit * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return { tickvals: ticks, ticktext: ticks.map((value) => `${Number(value.toPrecision(6))}`) };
}

/** Heights pushed apart until each has `gap`, in their order, between `top` and `bottom`. */
function spreadApart(heights, gap, top, bottom) {
  const order = heights.map((_, index) => index).sort((a, b) => heights[a] - heights[b]), placed = [...heights];
  let last = top - gap;
  for (const index of order) last = placed[index] = Math.max(placed[index], last + gap);
  let next = bottom + gap;
  for (const index of [...order].reverse()) next = placed[index] = Math.min(placed[index], next - gap);
  return placed;
}
