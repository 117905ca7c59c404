"""The example of docs/add-a-codec.md works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bwbench.base.component import Component
from bwbench.base.registry import COLLECTIVES, COMPRESSIONS
from bwbench.experiment.config import load_experiment
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.compression import ErrorFeedback, build_codec
from bwbench.methods.compression.codec_contract import violations

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "add-a-codec.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files; what they register is forgotten afterwards."""
    monkeypatch.setattr(COMPRESSIONS, "_entries", dict(COMPRESSIONS._entries))
    monkeypatch.setattr(COMPRESSIONS, "_classes", dict(COMPRESSIONS._classes))
    (tmp_path / "one_bit.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "one_bit.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    return tmp_path


def test_the_experiment_is_valid_and_finds_the_plugin(folder):
    experiment = load_experiment(folder / "one_bit.yaml")
    methods = [(point.config.collective.name, point.config.compression[0].to_json()) for point in experiment.points]
    assert methods == [
        ("ring", {"name": "none"}),
        ("ring", {"name": "fp16"}),
        ("scatter-gather", {"name": "one-bit", "block": 512}),
        ("scatter-gather", {"name": "one-bit", "block": 64}),
    ]


@pytest.mark.parametrize("block", [8, 64, 512, 100_000])
def test_the_codec_keeps_the_contract_and_is_wrapped(folder, block):
    load_experiment(folder / "one_bit.yaml")
    one_bit = COMPRESSIONS.load("one-bit")
    assert violations(lambda: one_bit(one_bit.Config(block=block))) == []
    assert isinstance(build_codec([Component("one-bit", one_bit.Config(block=block))]), ErrorFeedback)


def test_replicas_agree_and_the_mean_is_right_over_many_steps(folder):
    load_experiment(folder / "one_bit.yaml")
    one_bit = COMPRESSIONS.load("one-bit")
    num_ranks, num_steps = 3, 60
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(1000, generator=generator) for _ in range(num_ranks)]

    def work(group, rank):
        collective = COLLECTIVES.load("all-gather")()
        collective.connect(group)
        codec = build_codec([Component("one-bit", one_bit.Config(block=64))])
        total = torch.zeros(1000)
        for _ in range(num_steps):
            bucket = gradients[rank].clone()
            collective.average(bucket, codec, round_of(group, 0))
            total += bucket
        return total

    totals = run_ranks(num_ranks, work)
    assert all(torch.equal(total, totals[0]) for total in totals)
    error = totals[0] / num_steps - torch.stack(gradients).mean(dim=0)
    assert error.abs().mean() < 0.1  # 0.26 after one step, 0.025 after 60: error feedback


def test_the_check_of_the_page_says_so(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[1]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "keeps the contract\n"


def test_the_file_imports_without_torch(folder):
    code = (
        "import sys, one_bit; assert 'torch' not in sys.modules; assert one_bit.OneBit().payload_bytes(1000) == 8 + 125"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=120, check=True)
