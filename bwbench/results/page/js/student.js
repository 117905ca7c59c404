"use strict";
// Student's t for any degrees of freedom: bwbench/results/analysis/student.py, line by line, which a test holds against it.

const CONFIDENCE = 0.95, NORMAL_FROM = 1e7, TINY = 1e-300;
const knownStudentT = new Map();

/** Half-width of the two-sided interval in standard errors; degrees of freedom may be infinite. */
function studentT(freedom, confidence = CONFIDENCE) {
  const key = `${freedom} ${confidence}`;
  if (!knownStudentT.has(key)) knownStudentT.set(key, freshStudentT(freedom, confidence));
  return knownStudentT.get(key);
}

function freshStudentT(freedom, confidence) {
  const normal = freedom > NORMAL_FROM ? quantile(confidence, Infinity, 1.0, 0) : freshStudentT(Infinity, confidence);
  if (freedom > NORMAL_FROM) return normal;
  return quantile(confidence, freedom, normal * (1 + (normal ** 2 + 1) / (4 * freedom)), normal);
}

/** Newton's steps on the logarithm, halving where one leaves the bracket, which begins at `low`. */
function quantile(confidence, freedom, guess, low) {
  let high = Infinity;
  for (let round = 0; round < 200; round++) {
    const excess = within(guess, freedom) - confidence;
    if (excess > 0) high = guess;
    else low = guess;
    const step = guess * Math.exp(Math.min(2, -excess / (2 * density(guess, freedom) * guess)));
    const following = low < step && step < high ? step : high === Infinity ? 2 * guess : (low + high) / 2;
    if (Math.abs(following - guess) <= 1e-11 * guess) return following;
    guess = following;
  }
  return guess;
}

/** P(|T| <= t) with `freedom` degrees of freedom. */
function within(t, freedom) {
  if (freedom > NORMAL_FROM) return 1 - 2 * normalTail(t);
  const square = t * t;
  if (square < freedom) return betaShare(square / (freedom + square), 0.5, freedom / 2);
  return 1 - betaShare(freedom / (freedom + square), freedom / 2, 0.5);
}

function density(t, freedom) {
  if (freedom > NORMAL_FROM) return Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI);
  const logarithm = logGamma((freedom + 1) / 2) - logGamma(freedom / 2) - Math.log(freedom * Math.PI) / 2;
  return Math.exp(logarithm - ((freedom + 1) / 2) * Math.log1p((t * t) / freedom));
}

/** P(Z > z) of a standard normal value, through the incomplete gamma function. */
function normalTail(z) {
  if (z < 0) return 1 - normalTail(-z);
  const x = (z * z) / 2;
  if (x < 1.5) {
    let term = 1 / 0.5, sum = term;
    for (let n = 1; n < 200 && term > 1e-17 * sum; n++) sum += term *= x / (0.5 + n);
    return 0.5 * (1 - (sum * Math.exp(-x) * Math.sqrt(x)) / Math.sqrt(Math.PI));
  }
  let b = x + 0.5, c = 1 / TINY, d = 1 / b, h = d;
  for (let n = 1; n < 1000; n++) {
    const a = -n * (n - 0.5);
    b += 2;
    d = 1 / apartFrom0(a * d + b);
    c = apartFrom0(b + a / c);
    h *= c * d;
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return (0.5 * Math.exp(-x) * Math.sqrt(x) * h) / Math.sqrt(Math.PI);
}

function betaShare(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const logarithm = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x);
  if (x < (a + 1) / (a + b + 2)) return (Math.exp(logarithm) * fraction(x, a, b)) / a;
  return 1 - (Math.exp(logarithm) * fraction(1 - x, b, a)) / b;
}

function fraction(x, a, b) {
  let c = 1, d = 1 / apartFrom0(1 - ((a + b) * x) / (a + 1)), found = d;
  for (let m = 1; m < 1000; m++) {
    const terms = [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ];
    for (const term of terms) {
      d = 1 / apartFrom0(1 + term * d);
      c = apartFrom0(1 + term / c);
      found *= c * d;
    }
    if (Math.abs(c * d - 1) < 1e-15) break;
  }
  return found;
}

function apartFrom0(value) {
  return Math.abs(value) > TINY ? value : TINY;
}

// Lanczos' approximation with g = 7 and nine terms: 15 digits.
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

function logGamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  const shifted = x - 1, t = shifted + 7.5;
  const sum = LANCZOS.reduce((total, term, index) => (index === 0 ? term : total + term / (shifted + index)), 0);
  return 0.5 * Math.log(2 * Math.PI) + (shifted + 0.5) * Math.log(t) - t + Math.log(sum);
}

/** Confidence of each of `count` intervals that makes all of them hold at once (Bonferroni). */
function together(count) {
  return 1 - (1 - CONFIDENCE) / Math.max(1, count);
}
