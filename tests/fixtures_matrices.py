"""Composed results of real experiment files that nobody has run: plausible times, bytes and curves, quickly made.

python tests/fixtures_matrices.py DIR [FILE.yaml …]     writes the matrices of experiments/ into DIR
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bwbench.base.units import DURATION, SAMPLES
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.results.analysis.cells import setting_of

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
GRADIENT_BYTES = {"cnn": 828_072, "resnet8": 312_000, "char-transformer": 420_000, "logistic": 2_600}
# Size of what a codec sends, in fp32 gradients; and what it adds to the samples that are needed.
CODECS = {"none": 1.0, "fp16": 0.5, "bf16": 0.5, "int8": 0.25, "int4": 0.13, "sign": 0.035, "threshold": 0.06,
          "top-k": 0.02, "powersgd": 0.03}  # fmt: skip
EVERY = {"local-sgd": 16, "diloco": 50}  # steps from one averaging to the next
BEST = {"accuracy": 0.9, "loss": 1.7}
WIRE = 1.048  # headers on top of the payload

Json = dict[str, Any]


def write_matrix(
    root: Path,
    file: Path | str,
    overrides: Sequence[str] = (),
    keep: Callable[[Json], bool] = lambda cell: True,
    link_error: float = 0.004,
) -> list[Path]:
    """Write the cells of an experiment file below ``root/<name>/``; returns their folders.

    Args:
        file: a YAML file, or the name of one in experiments/. Learning rates need no table.
        overrides: as ``--set``.
        keep: which cells (content of cell.json) are done; the others are not written.
        link_error: standard deviation of achieved over asked rates, as a share.
    """
    path = EXPERIMENTS / f"{file}.yaml" if isinstance(file, str) else file
    folders = []
    for planned in build_plan(load_experiment(path, overrides, tuning=True)).cells:
        cell = planned.to_json()
        if not keep(cell):
            continue
        folder = root / planned.experiment / planned.folder_name
        folder.mkdir(parents=True)
        status, composed = outcome_of(cell, link_error)
        for name, content in (("cell", cell), ("status", status), ("composed", composed)):
            (folder / f"{name}.json").write_text(json.dumps(content) + "\n")
        folders.append(folder)
    return folders


def outcome_of(cell: Json, link_error: float) -> tuple[Json, Json]:
    """status.json and composed.json of one cell."""
    config, arm = cell["config"], cell["arm"]
    setting = setting_of(config)
    rng, of_seed = random.Random(f"{arm}/{cell['id']}"), random.Random(f"{setting.seed}/{arm}")
    compute_s = DURATION.parse(config["compute"]["step_time"] or "40 ms") * setting.accumulate
    payload, link_s = _traffic(config, setting, compute_s)
    step_s = compute_s + link_s
    metric = setting.target_metric or "accuracy"
    every = SAMPLES.parse(config["evaluate"]["every"])
    limit_samples = config["limit"]["samples"]
    limit_s = DURATION.parse(config["limit"]["time"]) if config["limit"]["time"] else math.inf
    needed = _samples_needed(config, setting) * random.Random(f"{setting.seed}").uniform(0.88, 1.15)
    needed *= of_seed.uniform(0.96, 1.06)

    curve: list[Json] = []
    step, reached = 0, None
    while not curve or curve[-1]["samples"] < limit_samples and curve[-1]["clock_s"] < limit_s:
        samples = step * setting.global_batch
        point: Json = {"step": step, "samples": samples, "clock_s": step * step_s, "payload_bytes": step * payload}
        value = _metric(metric, samples / needed, config) + of_seed.gauss(0, 0.002 if samples else 0.0)
        met = config["target"] is not None and (
            value <= setting.target_value if metric == "loss" else value >= (setting.target_value or 2)
        )
        point |= {metric: value, "target_met": bool(met)}
        curve.append(point)
        reached = point if met and reached is None else reached
        if met and config["stop"] == "target":
            break
        step = max(step + 1, math.ceil((samples + every) / setting.global_batch))
    last = curve[-1]
    total = last["payload_bytes"] if setting.nodes > 1 else 0
    clock_s = last["clock_s"]
    status: Json = {
        "schema": 1, "id": cell["id"], "slug": cell["slug"], "status": "done", "attempt": None, "metric": metric,
        "reason": "target" if reached and config["stop"] == "target" else "samples",
        "time_to_target_s": reached["clock_s"] if reached else None,
        "censored_at_s": None if reached or config["target"] is None else clock_s,
        "samples_to_target": reached["samples"] if reached else None,
        "payload_bytes_to_target": reached["payload_bytes"] if reached else None,
        "wire_bytes_to_target": round(WIRE * reached["payload_bytes"]) if reached else None,
        "final_metric": last[metric], "test_metric": last[metric], "steps": last["step"], "samples": last["samples"],
        "training_clock_s": clock_s, "evaluation_s": 1.0, "wall_s": 1.0, "overhead_s": 0.1, "payload_bytes": total,
        "wire_bytes": round(WIRE * total), "compute_median_s": 0.3 * compute_s, "step_median_s": step_s,
        "replicas_identical": True, "ledger_error": 0.0,
    }  # fmt: skip
    # Repeats share the timing run of their arm and link.
    timing = hashlib.sha256(json.dumps([arm, setting.nodes, config["link"]], sort_keys=True).encode()).hexdigest()[:10]
    parts = {"compute_s": 0.3 * compute_s, "pad_s": 0.7 * compute_s, "codec_s": 0.0, "peers_s": 0.1 * link_s,
             "link_s": 0.9 * link_s, "exposed_s": 0.0, "optimizer_s": 0.0, "other_s": 0.0}  # fmt: skip
    about = {"convergence": "c0ffee0000", "timing": timing, "timed_steps": 40, "max_payload_ratio": 1.0,
             "interval_s": [0.995 * clock_s, 1.005 * clock_s]}  # fmt: skip
    status["composed"] = about
    ledger = {"mean_s": parts, "median_s": parts, "step_mean_s": step_s, "step_median_s": step_s, "num_steps": 40,
              "num_ranks": setting.nodes, "peers_known": True, "peers_reason": None, "estimated": False,
              "additivity_error": 0.0}  # fmt: skip
    link = _link(config, setting.nodes, setting.bandwidth_bps, setting.rtt_s, rng, link_error)
    environment = {"schema": 1, "host": "bench-1", "kernel": "6.8.0", "git": {"commit": "0123456789", "dirty": False}}
    kept = ("time_to_target_s", "censored_at_s", "training_clock_s", "reason")
    return status, {
        "schema": 1, "id": cell["id"], **about, **{key: status[key] for key in kept}, "kinds": [], "curve": curve,
        "ledger": ledger, "gradient_bytes": GRADIENT_BYTES.get(setting.model, 100_000), "link": link,
        "environment": environment,
    }  # fmt: skip


def _traffic(config: Json, setting: Any, compute_s: float) -> tuple[int, float]:
    """Payload bytes of a step, all nodes together, and the seconds that it keeps the nodes waiting."""
    nodes, rate = setting.nodes, (setting.bandwidth_bps or 1e12) / 8
    if nodes == 1 or setting.algorithm == "no-communication":
        return 0, 0.0
    gradient = GRADIENT_BYTES.get(setting.model, 100_000)
    size = gradient * math.prod(_size(codec) for codec in config["compression"])
    size /= EVERY.get(setting.algorithm, 1)
    total = {"all-gather": nodes * (nodes - 1), "gossip-pair": nodes, "neighbours": 2 * nodes}.get(
        setting.collective, 2 * (nodes - 1)
    ) * size  # fmt: skip
    busiest = (nodes - 1) * size if setting.collective == "parameter-server" else total / nodes
    shared = config["link"]["medium"] == "shared"
    rounds = 2 * (nodes - 1) if setting.collective in ("ring", "torch") else 2
    link_s = (total if shared else busiest) / rate + rounds * (setting.rtt_s or 0.0) / 2
    if setting.algorithm in ("decentralized", "async"):  # behind the computing
        link_s = max(0.002, link_s - 0.8 * compute_s)
    return round(total), link_s


def _size(codec: Json) -> float:
    ratio = codec.get("ratio")
    return 2 * float(ratio) if codec["name"] == "top-k" and ratio else CODECS.get(codec["name"], 0.25)


def _loss_of_codecs(config: Json) -> float:
    """Share of accuracy that compression costs: the more the fewer bytes are left, far more without a residual."""
    size = math.prod(_size(codec) for codec in config["compression"])
    dropped = any(codec.get("error_feedback") is False for codec in config["compression"])
    return max(0.0, -math.log2(size) - 1) * (0.012 if dropped else 0.0016)


def _samples_needed(config: Json, setting: Any) -> float:
    scale = {"cnn": 9_000, "resnet8": 60_000, "char-transformer": 20_000}.get(setting.model, 3_000)
    batch = setting.global_batch
    late = {"local-sgd": 1.25, "diloco": 1.4, "decentralized": 1.05, "async": 1.3, "qadam": 0.95}
    partial = 1.3 if setting.collective in ("gossip-pair", "neighbours") else 1.0
    return scale * (1 + batch / 700) * late.get(setting.algorithm, 1.0) * partial * (1 + 6 * _loss_of_codecs(config))


def _metric(metric: str, progress: float, config: Json) -> float:
    best = BEST.get(metric, 0.9) * (1 - _loss_of_codecs(config) if metric == "accuracy" else 1.0)
    start = 0.1 if metric == "accuracy" else 4.1
    return best + (start - best) * math.exp(-1.6 * progress**0.5)


def _link(config: Json, nodes: int, bps: float | None, rtt_s: float | None, rng: random.Random, error: float) -> Json:
    if bps is None or nodes == 1:
        return {"schema": 1, "requested": config["link"], "backend": "unshaped", "achieved_before": None,
                "achieved_after": None}  # fmt: skip

    def measured(off: float) -> Json:
        pairs = [
            {"src": node, "dst": (node + 1) % nodes, "asked_bps": bps, "asked_goodput_bps": 0.972 * bps,
             "achieved_goodput_bps": 0.972 * bps * (1 + off + rng.gauss(0, error)), "asked_rtt_s": rtt_s or 1e-4,
             "achieved_rtt_s": (rtt_s or 1e-4) * (1 + abs(rng.gauss(0, 3 * error)))}
            for node in range(nodes)
        ]  # fmt: skip
        return {"backend": "relay", "verdict": "ok", "reasons": [], "tolerance": 0.05, "tries": 1, "pairs": pairs}

    return {"schema": 1, "requested": config["link"], "backend": "relay", "achieved_before": measured(0.0),
            "achieved_after": measured(-0.2 * error)}  # fmt: skip


if __name__ == "__main__":
    for one in sys.argv[2:] or sorted(str(file) for file in EXPERIMENTS.glob("*.yaml")):
        print(one, len(write_matrix(Path(sys.argv[1]), Path(one))))
