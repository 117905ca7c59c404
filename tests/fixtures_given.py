"""An experiment as a program gives it."""

from __future__ import annotations

GOOD: dict[str, object] = {
    "name": "good",
    "nodes": 4,
    "link": {"bandwidth": "10 Mbit/s", "latency": "2.5 ms"},
    "model": "mlp",
    "dataset": "digits",
    "optimizer": {"sgd": {"lr": 0.05}},
    "target": {"accuracy": 0.9},
    "limit": {"samples": 20000},
    "matrix": {"link.bandwidth": ["1 Mbit/s", "10 Mbit/s"], "algorithm": ["ring", "ddp"]},
}
