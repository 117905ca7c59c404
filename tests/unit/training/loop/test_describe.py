"""``python -m bwbench.training.loop.describe``: sizes and durations as JSON, an error in place of one that fails."""

from __future__ import annotations

import json
import subprocess
import sys

PLUGIN = """
print("a plugin that talks")
from bwbench.training.models import AbstractModel
from bwbench.base.registry import MODELS

class Two(AbstractModel):
    name = "two-layers"

    def _build(self, spec):
        from torch import nn
        print("while it builds, too")
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False), nn.Linear(2, spec.num_classes))

MODELS.register("two-layers", Two, "two layers")
"""


def test_describe_answers_each_request(tmp_path):
    plugin = tmp_path / "my model's.py"
    plugin.write_text(PLUGIN)
    usual = {"batch_size": 4, "threads": 1, "plugins": []}
    digits = {"name": "digits", "partition": {"name": "iid-reshuffled"}}
    text = {"name": "tinyshakespeare", "context": 8}
    small = {"name": "char-transformer", "embedding": 16, "heads": 2, "layers": 1}
    requests = [
        {"model": {"name": "logistic"}, "dataset": digits, **usual},
        {"model": {"name": "cnn"}, "dataset": text, **usual},
        {"model": {"name": "cnn", "width": -1}, "dataset": digits, **usual},
        {"model": {"name": "two-layers"}, "dataset": digits, **usual, "plugins": [str(plugin)]},
        {"model": {"name": "two-layers"}, "dataset": {"name": "mnist"}, **usual},
        {"model": small, "dataset": text, **usual},
        {"model": {"name": "cnn"}, "dataset": {"name": "mnist"}, **usual},
        {"model": {"name": "cnn"}, "dataset": {"name": "mnist"}, **usual, "optimizer": "muon"},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bwbench.training.loop.describe"],
        input=json.dumps({"requests": requests}),
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    found = json.loads(done.stdout)["results"]
    logistic, wrong_task, wrong_option, plugged, wrong_shape, transformer, by_sgd, by_muon = found
    assert by_muon["compute_s"] > by_sgd["compute_s"]  # a batch of four, and matrices of 128 by 1568
    assert logistic["num_parameters"] == 650
    assert logistic["parameter_shapes"] == [[10, 64], [10]]
    assert 0 < logistic["compute_s"] < 1 and 0 < logistic["sample_s"] < 0.1 and 0 < logistic["start_s"] < 60
    assert (logistic["num_validation"], logistic["num_test"]) == (143, 359)
    assert "does classification" in wrong_task["error"]
    assert wrong_option["error"] == "width: -1 is out of range: it must be 1 or more"
    assert plugged["parameter_shapes"] == [[2, 64], [10, 2], [10]]
    assert "RuntimeError" in wrong_shape["error"]
    assert transformer["parameter_shapes"][0] == [65, 16]
    assert "a plugin that talks" in done.stderr
