"use strict";
// Numbers and elements as people read them. Text from records goes in by textContent, or through plotText: never as markup.

const MINUS = "\u2212", DASH = "\u2013", TIMES = "\u00d7", NARROW = "\u202f";

function digits(value) {
  if (value >= 99.95) return value.toFixed(0);
  return value === 0 ? "0" : Number(value).toPrecision(3);
}

/** So many digits, trailing zeros kept, no exponent; more where it would otherwise read as `apartFrom`, which it is not. */
function significant(value, count, apartFrom = null) {
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : `${MINUS}\u221e`;
  let text = "";
  for (let number = count; number < 16; number++) {
    text = withDigits(value, number);
    if (apartFrom === null || value === apartFrom || Number(text) !== apartFrom) break;
  }
  return text.replace("-", MINUS);
}

function withDigits(value, count) {
  if (value === 0) return "0";
  const power = Math.floor(Math.log10(Math.abs(value))), places = Math.max(0, count - 1 - power), text = fixed(value, places);
  return places && Math.abs(Number(text)) >= 10 ** (power + 1) ? fixed(value, places - 1) : text; // 9.996 reads 10.0
}

/** As toFixed, but of a number that lies exactly between two the even one, as Python has it. */
function fixed(value, places) {
  const text = value.toFixed(places), rest = value.toFixed(Math.min(100, places + 60)).split(".")[1].slice(places);
  if (!/^50*$/.test(rest) || Number(text[text.length - 1]) % 2 === 0) return text;
  return (Number(text) - Math.sign(value) * 10 ** -places).toFixed(places);
}

/** A duration with three digits: 3.42 s, 15.2 min. */
function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  if (!Number.isFinite(value)) return "\u221e";
  if (value < 0.1) return `${digits(value * 1e3)} ms`;
  if (value <= 600) return `${digits(value)} s`;
  return value <= 6 * 3600 ? `${digits(value / 60)} min` : `${digits(value / 3600)} h`;
}

function timeUnit(longest) {
  if (longest < 0.1) return { seconds: 1e-3, symbol: "ms" };
  if (longest <= 600) return { seconds: 1, symbol: "s" };
  return longest <= 6 * 3600 ? { seconds: 60, symbol: "min" } : { seconds: 3600, symbol: "h" };
}

function ratioWords(value) {
  const text = value >= 99.5 ? value.toFixed(0) : value >= 0.995 ? value.toPrecision(3) : value.toPrecision(2);
  return `${text}${TIMES}`;
}

/** Three digits, in the largest unit of which there is one once it is rounded: 999.7 ms are 1 s. */
function scaled(value, units) {
  const unitOf = (size) => units.find(([factor]) => Math.abs(size) >= factor * (1 - 1e-12)) || units[units.length - 1];
  const rounded = Number((value / unitOf(value)[0]).toPrecision(3)) * unitOf(value)[0], [factor, unit] = unitOf(rounded);
  return `${Number((rounded / factor).toPrecision(3))} ${unit}`;
}

function rate(bps) {
  if (bps === null || bps === undefined) return "unshaped";
  return scaled(bps, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]);
}

function bytes(value) {
  if (value === null || value === undefined) return DASH;
  return scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
}

function shortTime(value) {
  if (value === null || value === undefined) return DASH;
  return value === 0 ? "0 ms" : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"]]);
}

function metricWords(value, metric) {
  if (value === null || value === undefined) return DASH;
  return metric === "accuracy" ? `${Number((100 * value).toFixed(2))} %` : `${Number(value.toPrecision(4))}`;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** 41.3 s [38.1, 44.8]; > 60 s; an interval only where there is one. */
function estimateWords(estimate) {
  if (!Number.isFinite(estimate.value)) return `> ${seconds(estimate.atLeast)}`;
  if (estimate.low === null) return seconds(estimate.value);
  const unit = timeUnit(estimate.value);
  return `${seconds(estimate.value)} [${digits(estimate.low / unit.seconds)}, ${digits(estimate.high / unit.seconds)}]`;
}

/** Behind a time that is a first crossing; the notes say what that means. */
function crossingMark(firstCrossing) {
  return firstCrossing ? " \u2021" : "";
}

/** Names come from YAML, and plotly reads labels as HTML and templates. */
function plotText(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** An element: attributes by name, listeners as functions (onclick), children as nodes or text. */
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function byId(id) {
  return document.getElementById(id);
}
