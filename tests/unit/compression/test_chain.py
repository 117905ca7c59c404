from __future__ import annotations

import subprocess
import sys

import pytest

from bwbench.compression import ErrorFeedback, build_codec
from bwbench.compression.fp16 import Fp16
from bwbench.compression.none import NoCompression
from bwbench.compression.threshold import Threshold, ThresholdConfig
from bwbench.config.codec_chain import chain_refusal
from bwbench.config.component import Component
from bwbench.errors import ConfigError


def chain(*names):
    return [Component(name) for name in names]


def test_none_changes_nothing_anywhere_in_a_chain():
    assert isinstance(build_codec(chain("none")), NoCompression)
    assert isinstance(build_codec([]), NoCompression)
    assert isinstance(build_codec(chain("none", "fp16", "none")), Fp16)


def test_biased_codecs_are_wrapped_unless_told_otherwise():
    assert isinstance(build_codec([Component("threshold", ThresholdConfig())]), ErrorFeedback)
    bare = build_codec([Component("threshold", ThresholdConfig(error_feedback=False))])
    assert isinstance(bare, Threshold)


def test_only_codecs_that_carry_values_can_be_followed():
    assert "'threshold' cannot follow 'fp16'" in chain_refusal(chain("fp16", "threshold"))
    with pytest.raises(ConfigError, match="cannot follow"):
        build_codec(chain("fp16", "threshold"))


def test_plan_time_parts_import_no_torch():
    modules = "bwbench.compression bwbench.collectives bwbench.algorithms".split()
    code = f"""
import importlib, sys
from bwbench.registry import ALGORITHMS, COLLECTIVES, COMPRESSIONS
[importlib.import_module(name) for name in {modules}]
codecs = [COMPRESSIONS.load(name)() for name in COMPRESSIONS.names()]
[codec.payload_bytes(1000) for codec in codecs]
[COLLECTIVES.load(name)().traffic(4, [1000]) for name in COLLECTIVES.names()]
[ALGORITHMS.load(name)() for name in ALGORITHMS.names()]
print([name for name in ("torch", "pandas", "matplotlib", "numpy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
