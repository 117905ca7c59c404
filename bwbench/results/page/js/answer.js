"use strict";
// The answer in one form, as bwbench/results/analysis/answer.py says it, sentence by sentence, which a test holds against
// it; here for any link and target. A sentence is a list of pieces: text, or {strong: text}.

const ONE_NODE = "one node", ANSWER_DIGITS = 2;

/**
 * The sentences behind setting and link.
 *
 * rows: of `ranking`, the first one first. baseline: the arm that others are measured by, or null. target: as words.
 * oneNode: what records say of one node beside an arm (its index), or null; nameOf: what an arm is called.
 */
function answerSentences({ rows, baseline, target, oneNode, nameOf }) {
  const best = rows[0], called = callerOf(rows, nameOf);
  if (!Number.isFinite(best.value)) return [[`no arm reaches ${target} in most of its repeats.`], [answerTag(rows)]];
  const alone = rows.filter(isAlone), methods = rows.filter((row) => !isAlone(row));
  const measuring = rows.find((row) => row.arm === baseline), beside = isAlone(best) ? methods[0] : alone[0];
  const oneRepeat = best.num < 2, isTold = (row) => oneRepeat || verdict(row) !== "unknown";
  const saysNothing = ({ bound, value }) => bound === ">" && value <= 1; // at least 0.9 times as long is no longer
  const against = [...new Set([measuring, beside])].filter((row) => row && row !== best && row.ratio && !saysNothing(row.ratio) && isTold(row));
  const quoted = [best, ...against];
  const first = [...(oneRepeat ? [{ strong: called(best) }, " was first: "] : ["use ", { strong: called(best) }, ": "]),
    `${target} in `, { strong: shortTimeOf(best) }, intervalOf(best)];
  against.forEach((row) => first.push(`, ${soonerWords(row, called(row))}`));
  first.push(".");
  if (oneRepeat) return [first, ["One repeat says nothing about chance."], [answerTag(quoted)]];
  const sentences = [first], told = (word) => rows.slice(1).filter((row) => verdict(row) === word).map(called);
  const withParts = against.length && against[0] === measuring && !isAlone(best) && !isAlone(measuring) && sameBatch(best, measuring);
  const parts = withParts ? partsBetween(measuring, best) : null;
  if (parts !== null) sentences.push([partsWords(parts, called(measuring))]);
  const alike = told("tie"), untold = told("unknown"), method = isAlone(best) ? methods[0] : best;
  if (alike.length) sentences.push([`Not distinguishable from ${called(best)}: ${alike.join(", ")}.`]);
  if (untold.length) sentences.push([`Nothing is known of ${untold.join(", ")}: too few repeats, or too few that arrived.`]);
  const where = method && oneNode ? oneNode(method.arm) : null;
  if (where) sentences.push([where]);
  return [...sentences, [answerTag(quoted)]];
}

function isAlone(row) {
  return row.lower.cells[0].role === REFERENCE;
}

function callerOf(rows, nameOf) {
  const several = rows.filter(isAlone).length > 1;
  return (row) => (isAlone(row) ? (several ? aloneName(nameOf(row.arm)) : ONE_NODE) : nameOf(row.arm));
}

/** `one node (optimizer=muon)` of `single(optimizer=muon)`; of other names all of it, in the brackets. */
function aloneName(name) {
  const at = name.indexOf("(");
  if (at < 0) return `${ONE_NODE} (${name})`;
  const base = name.slice(0, at), options = name.slice(at + 1);
  return base === "single" ? `${ONE_NODE} (${options}` : `${ONE_NODE} (${base}, ${options}`;
}

function sameBatch(one, other) {
  return new Set([one, other].flatMap((row) => [row.lower, row.upper]).flatMap((point) => point.cells).map((cell) => cell.global_batch)).size === 1;
}

function shortTimeOf(row) {
  const unit = timeUnit(row.value);
  return `${significant(row.value / unit.seconds, ANSWER_DIGITS)} ${unit.symbol}`;
}

function intervalOf(row) {
  const unit = timeUnit(row.value);
  return row.low === null ? "" : endsWords(row.low / unit.seconds, row.high / unit.seconds);
}

function endsWords(low, high, apartFrom = null) {
  return ` (${significant(low, ANSWER_DIGITS, apartFrom)} to ${significant(high, ANSWER_DIGITS, apartFrom)})`;
}

/** "Perhaps" also where all arms tested together leave the two not distinguishable, whatever their own interval says. */
function soonerWords(row, name) {
  const { ratio } = row;
  const times = `${ratio.bound === ">" ? "more than " : ""}${significant(ratio.value, ANSWER_DIGITS, 1)} times`;
  const known = ratio.low !== null && ratio.high !== null;
  return `${holdsOne(ratio) || verdict(row) === "tie" ? "perhaps " : ""}${times}${known ? endsWords(ratio.low, ratio.high, 1) : ""} sooner than ${name}`;
}

function partsWords({ step, samples }, name) {
  const cheap = step.value > 1, cost = significant(cheap ? step.value : 1 / step.value, ANSWER_DIGITS, 1);
  const steps = holdsOne(step) ? "its steps may take as long" : `its steps are ${cost} times as ${cheap ? "cheap" : "dear"}`;
  const need = holdsOne(samples) ? "may take as many samples" : `takes ${significant(1 / samples.value, ANSWER_DIGITS, 1)} times the samples`;
  return `Beside ${name} ${steps}, and it ${need}.`;
}

function holdsOne({ low, high }) {
  return low !== null && high !== null && low <= 1 && 1 <= high;
}

/** Where the times are from, and how many repeats they rest on. Between measured links nothing was measured. */
function answerTag(rows) {
  const points = rows.flatMap((row) => [row.lower, row.upper]), any = (holds) => points.some(holds);
  const between = rows.some((row) => row.weight > 0) ? "interpolated" : "";
  const words = [between, any((point) => point.numComposed) ? "composed" : between ? "" : "measured", any((point) => point.firstCrossing) ? "first crossings" : "",
    any((point) => point.hostBound) ? "host-bound" : "", `n = ${Math.min(...rows.map((row) => row.num))}`];
  return `[${words.filter(Boolean).join(", ")}]`;
}
