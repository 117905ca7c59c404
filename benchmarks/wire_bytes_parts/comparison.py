"""One preset's counted bytes beside its formula, its plan, and what the frames should come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wire_bytes_parts.formulas import FRAME_HEADERS, NODES, SEGMENT, VOTE, Exchange, Method, S

TOLERANCE = 0.03
FULL_FRAMES = 1 + FRAME_HEADERS / SEGMENT  # wire bytes of a payload byte where every frame is full
VOTES = Exchange(NODES * (NODES - 1) * VOTE, NODES * (NODES - 1))
STRETCHES = 2  # of rounds by time, each ended by a vote: until the last evaluation, and what is left to drain behind it
GUESSED_STEP_S = 0.1  # docs/algorithms/async.md: the plan's bytes a step are those of 100 ms


def compared(name: str, method: Method, folder: Path, planned_bytes_per_step: float) -> dict[str, Any]:
    """The row of a cell that is done.

    Args:
        folder: of the cell.
        planned_bytes_per_step: payload, as ``bwbench plan`` predicts it for the steps after a warm-up.
    """
    status = json.loads((folder / "status.json").read_text())
    attempt = folder / f"attempt-{status['attempt']}"
    wire = json.loads((attempt / "link.json").read_text())["wire"]
    payload, steps = status["payload_bytes"], status["steps"]
    warm_up = sum(sent_until(file, method.warm_up) for file in attempt.glob("rank*.jsonl"))
    if method.exchanges is None:
        formula = by_time(method.exchange, payload)
        planned = planned_bytes_per_step * status["training_clock_s"] / GUESSED_STEP_S
    else:
        formula = [(method.exchange, method.exchanges)]
        planned = planned_bytes_per_step * (steps - method.warm_up)
    phases = [phase("after warm-up" if method.warm_up else "all", steps - method.warm_up, payload - warm_up, formula)]
    if method.warm_up_exchange is not None:
        phases.insert(0, phase("warm-up", method.warm_up, warm_up, [(method.warm_up_exchange, method.warm_up)]))
    wire_bytes, frames = wire["bytes"] - wire["ack_bytes"], wire["frames"] - wire["ack_frames"]
    wire_formula = sum(part["wire_formula_bytes"] for part in phases)
    row = {
        "preset": name,
        "steps": steps,
        "exchanges": sum(count for exchange, count in formula if exchange is not VOTES),
        "gradient_bytes": S,
        "payload_bytes": payload,
        "formula_bytes": sum(part["formula_bytes"] for part in phases),
        "deviation": max((part["deviation"] for part in phases), key=abs),
        "phases": phases,
        "plan_bytes": planned,
        "plan_deviation": (payload - warm_up) / planned - 1,
        "wire_bytes": wire_bytes,
        "frames": frames,
        "ack_bytes": wire["ack_bytes"],
        "drops": wire["drops"],
        "wire_per_payload": wire_bytes / payload,
        "full_frames": FULL_FRAMES,
        "excess": wire_bytes / payload - FULL_FRAMES,
        "excess_headers": FRAME_HEADERS * frames / payload - (FULL_FRAMES - 1),
        "excess_messages": (wire_bytes - FRAME_HEADERS * frames) / payload - 1,
        "wire_formula_bytes": wire_formula,
        "wire_deviation": wire_bytes / wire_formula - 1,
    }
    return {**row, "ok": whole(method, row)}


def whole(method: Method, row: dict[str, Any]) -> bool:
    """Whether a row is within the tolerance. What goes by time sends at most what was planned: nodes may come late."""
    close = abs(row["deviation"]) <= TOLERANCE and abs(row["wire_deviation"]) <= TOLERANCE
    if method.exchanges is None:
        return close and row["plan_deviation"] <= TOLERANCE
    return close and abs(row["plan_deviation"]) <= TOLERANCE


def sent_until(file: Path, last_step: int) -> int:
    """Payload bytes of a rank in its first steps."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return sum(e["payload_bytes"] for e in events if e["event"] == "step" and e["step"] <= last_step)


def by_time(exchange: Exchange, payload: float) -> list[tuple[Exchange, float]]:
    """As many whole rounds as fit into what was sent, a vote before each, and those that end them."""
    rounds = round(payload / (exchange.payload_bytes + VOTES.payload_bytes))
    return [(exchange, rounds), (VOTES, rounds + STRETCHES)]


def phase(name: str, steps: int, payload: float, formula: list[tuple[Exchange, float]]) -> dict[str, Any]:
    """One stretch of a run in which all steps, or periods, are alike."""
    expected = sum(count * exchange.payload_bytes for exchange, count in formula)
    return {
        "phase": name,
        "steps": steps,
        "payload_bytes": payload,
        "formula_bytes": expected,
        "deviation": payload / expected - 1,
        "wire_formula_bytes": sum(count * exchange.wire_bytes for exchange, count in formula),
    }


def heading() -> str:
    return (
        f"{'preset':28} {'steps':>5} {'exchanges':>9} {'node and step':>13} {'of S':>7} {'formula':>8} {'plan':>8} "
        f"{'wire/payload':>12} {'headers':>8} {'messages':>8} {'wire formula':>12}"
    )


def shown(row: dict[str, Any]) -> str:
    if "why" in row:
        return f"{row['preset']:28} {row['why']}"
    each = row["payload_bytes"] / row["steps"] / NODES
    return (
        f"{row['preset']:28} {row['steps']:5} {row['exchanges']:9g} {each / 1e3:10.1f} kB {each / S:7.4f} "
        f"{100 * row['deviation']:+6.2f} % {100 * row['plan_deviation']:+6.2f} % {row['wire_per_payload']:12.4f} "
        f"{100 * row['excess_headers']:+6.2f} % {100 * row['excess_messages']:+6.2f} % "
        f"{100 * row['wire_deviation']:+10.2f} %" + ("" if row["ok"] else "  NOT WITHIN")
    )
