"""Result folders that no run has made: plausible arms, links, repeats and faults, for tests and to look at pictures.

python tests/fixtures_records.py DIR     writes the studies of STUDIES into DIR
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bwbench.experiment.config import method_names
from bwbench.methods.roles import METHOD, Role, standing_by_name
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.schema import Event, LinkRecord, parse_event
from bwbench.results.analysis.trial import summarise

PRESETS: dict[str, tuple[str, str, str]] = {
    "ddp": ("every-step", "torch", "none"),
    "ring": ("every-step", "ring", "none"),
    "ring-fp16": ("every-step", "ring", "fp16"),
    "threshold": ("every-step", "all-gather", "threshold"),
    "parameter-server": ("every-step", "parameter-server", "none"),
    "single": ("single", "none", "none"),
    "no-communication": ("no-communication", "none", "none"),
}
# Bytes on the busiest link and step, in sizes of the gradient; seconds to encode and decode; samples needed, relative.
TRAFFIC = {"ddp": 1.5, "ring": 1.5, "ring-fp16": 0.75, "threshold": 0.12, "parameter-server": 3.0}
CODEC_S = {"ring-fp16": 0.0015, "threshold": 0.004}
SLOWER = {"threshold": 1.12, "ring-fp16": 1.02, "single": 0.93}


@dataclass(frozen=True)
class Study:
    """What to make up. Times in seconds, bandwidths in Mbit/s (None: unshaped)."""

    name: str = "study"
    arms: Sequence[str] = tuple(PRESETS)
    bandwidths_mbps: Sequence[float | None] = (10.0,)
    repeats: int = 3
    nodes: int = 4
    model: str = "cnn"
    dataset: str = "digits"
    gradient_bytes: int = 80_000
    compute_s: float = 0.012
    step_time_s: float | None = None
    latency: str = "2.5 ms"
    medium: str = "shared"
    target: float | None = 0.95
    limit_s: float | None = None
    samples_scale: float = 6000.0
    every: int = 640
    same_boot: bool = True
    extra: dict[str, Any] = field(default_factory=dict)
    statuses: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)


def write_study(root: Path, study: Study) -> list[Path]:
    """Write the cells of ``study`` below ``root/<name>/``; returns their folders."""
    folders = []
    for bandwidth in study.bandwidths_mbps:
        for repeat in range(study.repeats):
            for arm in study.arms:
                cell = cell_of(study, arm, bandwidth, repeat)
                folder = root / study.name / f"{cell['slug']}-{cell['id']}"
                if not folder.exists():  # one node alone is the same cell at every bandwidth: planned once
                    _write_cell(folder, study, cell, bandwidth)
                    folders.append(folder)
    return folders


def cell_of(study: Study, arm: str, bandwidth_mbps: float | None, repeat: int) -> dict[str, Any]:
    """cell.json of one cell."""
    algorithm, collective, compression = PRESETS.get(arm, ("every-step", "ring", arm.removeprefix("ring-")))
    alone = arm == "single"
    shaped = not alone and bandwidth_mbps is not None
    link: dict[str, Any] = {
        "shaped": shaped, "bandwidth": f"{bandwidth_mbps:g} Mbit/s" if shaped else None,
        "latency": study.latency if shaped else "0 us", "jitter": "0 us", "loss": 0.0, "queue": None,
        "medium": study.medium if shaped else "switched", "backend": "auto",
    }  # fmt: skip
    config: dict[str, Any] = {
        "nodes": 1 if alone else study.nodes,
        "link": link,
        "model": {"name": study.model},
        "dataset": {"name": study.dataset, "partition": {"name": "iid-reshuffled"}},
        "batch_size": 32,
        "accumulate": 1,
        "algorithm": {"name": algorithm},
        "collective": {"name": collective},
        "compression": [{"name": compression}],
        "optimizer": {"name": "sgd", "lr": 0.05 if arm != "threshold" else 0.03, "momentum": 0.9},
        "compute": {"threads": 1, "step_time": f"{1000 * study.step_time_s:g} ms" if study.step_time_s else None},
        "evaluate": {"every": f"{study.every} samples"},
        "target": None if study.target is None else {"metric": "accuracy", "value": study.target},
        "stop": "target",
        "limit": {"samples": 200_000, "time": f"{study.limit_s:g} s" if study.limit_s else None},
        "seed": repeat,
        "plugins": [],
        **study.extra,
    }
    digest = recorded_identity(config)
    rate = "unshaped" if not shaped else f"{bandwidth_mbps:g}mbps"
    slug = f"{arm}-{study.model}-{rate}-r{repeat}"
    about = {"schema": 1, "id": digest, "slug": slug, "experiment": study.name, "arm": arm, "repeat": repeat}
    return {**about, "config": config}


def _write_cell(folder: Path, study: Study, cell: dict[str, Any], bandwidth_mbps: float | None) -> None:
    attempt = folder / "attempt-1"
    attempt.mkdir(parents=True)
    _dump(folder / "cell.json", cell)
    status, reason = study.statuses.get((cell["arm"], cell["repeat"]), ("done", ""))
    if status == "missing":
        attempt.rmdir()
        return
    events = events_of(study, cell, bandwidth_mbps)
    if status != "done":
        events = {rank: rank_events[: len(rank_events) // 3] for rank, rank_events in events.items()}
    for rank, rank_events in events.items():
        lines = "".join(json.dumps(event) + "\n" for event in rank_events)
        (attempt / f"rank{rank}.jsonl").write_text(lines)
        first_line = reason.partition("\n")[0]
        last_words = (
            f"Traceback (most recent call last):\nRuntimeError: {first_line}\n" if status == "failed" else "done\n"
        )
        (attempt / f"rank{rank}.log").write_text(last_words)
    payload = sum(event.get("payload_bytes", 0) for evs in events.values() for event in evs if event["event"] == "step")
    link = _link_json(cell, payload, max(1, len(events[0])))
    _dump(attempt / "link.json", link)
    environment = {
        "schema": 1, "host": "bench-1", "boot_id": "b7", "kernel": "6.8.0", "cpu": "Example CPU", "cores": 2,
        "python": "3.11.7", "bwbench": "0.1.0", "packages": {"torch": "2.13.0"},
        "git": {"commit": "0123456789abcdef0123", "dirty": False}, **study.environment,
    }  # fmt: skip
    _dump(attempt / "environment.json", environment)
    summary = summarise(typed(events), cell["config"], LinkRecord.model_validate(link).wire).to_json()
    wall = {"wall_s": summary["training_clock_s"] + summary["evaluation_s"] + 6.0, "overhead_s": 6.0}
    if status != "unfinished":
        about = {"schema": 1, "id": cell["id"], "slug": cell["slug"], "status": status, "attempt": 1}
        ended = "target" if summary.get("time_to_target_s") is not None else "time"
        _dump(folder / "status.json", {**about, "reason": reason or ended, **summary, **wall})


def typed(events: dict[int, list[dict[str, Any]]]) -> dict[int, list[Event]]:
    """Events as readers get them."""
    return {rank: [parse_event(json.dumps(event), "made up", "") for event in found] for rank, found in events.items()}


def events_of(study: Study, cell: dict[str, Any], bandwidth_mbps: float | None) -> dict[int, list[dict[str, Any]]]:
    """Events of every rank of one run."""
    arm, config = cell["arm"], cell["config"]
    nodes, seed = config["nodes"], config["seed"]
    rng = random.Random(f"{arm}/{seed}/{bandwidth_mbps}")
    needed = study.samples_scale * SLOWER.get(arm, 1.0) * random.Random(f"{seed}").uniform(0.85, 1.2)
    global_batch = config["batch_size"] * nodes
    sent = TRAFFIC.get(arm, 1.0) * study.gradient_bytes if nodes > 1 and arm != "no-communication" else 0.0
    rate = (bandwidth_mbps or 20_000.0) * 1e6 / 8
    link_s = 0.004 + sent * nodes / rate if sent else 0.0
    common = {"schema": 1, "world_size": nodes, "pid": 1, "num_parameters": study.gradient_bytes // 4,
              "gradient_bytes": study.gradient_bytes, "global_batch": global_batch, "num_train": 1200,
              "num_validation": 120, "num_test": 300, "bucket_bytes": [study.gradient_bytes], "threads": 1,
              "torch_version": "2.13", "overlap_estimated": arm == "ddp", "tcp": {}}  # fmt: skip
    events: dict[int, list[dict[str, Any]]] = {}
    for rank in range(nodes):
        mono_s = 1000.0 if study.same_boot else 1000.0 + 5000.0 * rank
        start = {"event": "start", "rank": rank, "time_unix_s": 1.7e9, "mono_s": mono_s, **common}
        events[rank] = [start, _eval("validation", 0, 0, 0.0, 0.1, study)]
    clock_s, samples, step, reached = 0.0, 0, 0, False
    next_evaluation = study.every
    limit_s = study.limit_s or math.inf
    while not reached and samples < 60_000 and clock_s < limit_s:
        step += 1
        samples += global_batch
        own = [study.compute_s * rng.uniform(0.9, 1.25) for _ in range(nodes)]
        pad = [max(0.0, (study.step_time_s or 0.0) - seconds) for seconds in own]
        ready = [seconds + padded for seconds, padded in zip(own, pad, strict=True)]
        codec_s, wait_s = CODEC_S.get(arm, 0.0), link_s * rng.uniform(0.95, 1.15)
        slowest = max(ready) if sent else 0.0
        duration_s = max(ready) + codec_s + wait_s + 0.0012
        for rank in range(nodes):
            exposed_s = (slowest - ready[rank] + wait_s) if sent else 0.0
            other_s = 0.0004 + (0.0 if sent else duration_s - ready[rank] - 0.0012)
            ledger = {"compute_s": own[rank], "pad_s": pad[rank], "codec_s": codec_s, "exposed_s": exposed_s,
                      "optimizer_s": 0.0008, "other_s": other_s}  # fmt: skip
            mono_s = 1000.0 + clock_s
            events[rank].append({
                "event": "step", "step": step, "samples": samples, "clock_s": clock_s + duration_s, "mono_s": mono_s,
                "ready_mono_s": mono_s + ready[rank], "duration_s": duration_s, "loss": 1.0, "lr": 0.05,
                "payload_bytes": int(sent), "ledger": ledger,
            })  # fmt: skip
        clock_s += duration_s
        if samples >= next_evaluation:
            next_evaluation += study.every
            accuracy = 0.1 + 0.885 * (1 - math.exp(-3.4 * samples / needed)) + rng.gauss(0, 0.004)
            reached = study.target is not None and accuracy >= study.target
            for rank in range(nodes):
                events[rank].append(_eval("validation", step, samples, clock_s + 1e-4 * rank, accuracy, study))
    for rank in range(nodes):
        events[rank].append({**_eval("test", step, samples, clock_s, 0.94, study), "target_met": False})
        events[rank].append({
            "event": "end", "status": "done", "reason": "target" if reached else "time", "step": step,
            "samples": samples, "clock_s": clock_s, "payload_bytes": int(sent) * step,
            "replica_sha256": "ab" * 32, "evaluation_s": 0.02 * step,
        })  # fmt: skip
    return events


def _eval(split: str, step: int, samples: int, clock_s: float, accuracy: float, study: Study) -> dict[str, Any]:
    accuracy = min(0.999, max(0.02, accuracy))
    mean = {"accuracy": accuracy, "loss": -math.log(accuracy)}
    met = study.target is not None and accuracy >= study.target
    return {"event": "eval", "split": split, "step": step, "samples": samples, "clock_s": clock_s, "local": mean,
            "mean": mean, "target_met": met, "duration_s": 0.02}  # fmt: skip


def _link_json(cell: dict[str, Any], payload: int, steps: int) -> dict[str, Any]:
    asked = cell["config"]["link"]
    measured = None
    if asked["shaped"]:
        bps = float(asked["bandwidth"].split()[0]) * 1e6
        pair = {"src": 0, "dst": 1, "asked_bps": bps, "asked_goodput_bps": bps * 0.956, "asked_rtt_s": 0.0056,
                "achieved_goodput_bps": bps * 0.953, "achieved_rtt_s": 0.0058,
                "asked_loss": 0.0, "achieved_loss": 0.0}  # fmt: skip
        measured = {"backend": "relay", "verdict": "ok", "reasons": [], "pairs": [pair, {**pair, "src": 1, "dst": 2}]}
    wire = int(payload * 1.075)  # of which 0.025 acknowledgements
    return {
        "schema": 1, "requested": asked, "backend": "relay" if asked["shaped"] else "unshaped",
        "backend_reason": "this kernel has no netem",
        "applied": {"rate_bps": measured["pairs"][0]["asked_bps"] if measured else None},
        "achieved_before": measured, "achieved_after": measured,
        "emulator": {"backend": "relay", "lateness_p50_s": 1e-5, "lateness_p99_s": 2e-4, "lateness_max_s": 2e-3,
                     "cpu_s": 3.2, "drops": 0},
        "wire": {"steps": steps, "bytes": wire, "ack_bytes": wire - int(payload * 1.05), "frames": wire // 1400,
                 "per_step_bytes": payload * 1.05 / steps, "payload_bytes": payload,
                 "ratio": 1.05 if payload else None},
    }  # fmt: skip


def _dump(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


STUDIES = (
    Study("demo", repeats=1, limit_s=60.0),
    Study("repeats", repeats=3, limit_s=16.0, step_time_s=0.03,
          statuses={("ring-fp16", 2): ("failed", "rank 2: connection reset by peer"), ("ddp", 1): ("invalid", "link"),
                    ("threshold", 1): ("missing", "")}),
    Study("sweep", repeats=3, bandwidths_mbps=(1.0, 3.0, 10.0, 30.0, 100.0), limit_s=60.0, medium="switched"),
)  # fmt: skip

if __name__ == "__main__":
    for one in STUDIES:
        print(one.name, len(write_study(Path(sys.argv[1]), one)))


def role_of_preset(name: str) -> Role:
    """The role of the arm that a preset makes; a method's where there is none of this name."""
    if (preset := method_names.PRESETS.get(name)) is None:
        return METHOD
    algorithm, collective, codecs = preset.axes
    return standing_by_name(algorithm, collective, codecs.split("+")).role
