"""Who wins on which link, and whether that is certain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
import pytest
from fixtures_records import role_of_preset

from bwbench.results.figures.best_algorithm import fastest_by_link

Times = Mapping[str, Sequence[float | None]]  # of each seed; None: not reached within 100 s


def cells(times: Times, bandwidth_bps: float | None = 1e6, rtt_s: float | None = 0.005) -> pd.DataFrame:
    rows = []
    for arm, of_seeds in times.items():
        for seed, time_s in enumerate(of_seeds):
            no_link = arm == "single"
            rows.append({
                "arm": arm, "role": role_of_preset(arm), "seed": seed, "status": "done", "composed": False,
                "bandwidth_bps": None if no_link else bandwidth_bps, "rtt_s": None if no_link else rtt_s,
                "time_to_target_s": time_s, "censored_at_s": 100.0 if time_s is None else None,
            })  # fmt: skip
    return pd.DataFrame(rows).astype({"bandwidth_bps": float, "rtt_s": float})


def test_the_margin_is_that_over_the_second_and_one_node_alone_takes_part() -> None:
    (race,) = fastest_by_link(cells({"ddp": (40.0, 44.0), "diloco": (10.0, 11.0), "single": (20.0, 22.0)}))
    assert (race.arm, race.runner_up, race.num) == ("diloco", "single", 2)
    assert race.margin is not None and race.margin.value == pytest.approx(2.0)
    assert race.tie is False


def test_a_margin_whose_interval_holds_one_is_a_tie() -> None:
    (race,) = fastest_by_link(cells({"ddp": (10.0, 12.0, 11.0), "ring": (11.0, 11.5, 11.0)}))
    assert race.tie is True


def test_one_repeat_says_nothing_of_ties() -> None:
    (race,) = fastest_by_link(cells({"ddp": (10.0,), "ring": (11.0,)}))
    assert race.arm == "ddp" and race.tie is None


def test_a_free_network_takes_no_part() -> None:
    (race,) = fastest_by_link(cells({"no-communication": (1.0, 1.1), "ddp": (10.0, 11.0)}))
    assert race.arm == "ddp" and race.runner_up is None and race.margin is None


def test_nobody_wins_where_nobody_arrives_and_a_bound_is_a_bound() -> None:
    (nobody,) = fastest_by_link(cells({"ddp": (None, None), "ring": (None, None)}))
    assert nobody.arm is None and math.isinf(nobody.time_s)
    (race,) = fastest_by_link(cells({"ddp": (None, None), "ring": (20.0, 20.0)}))
    assert race.margin is not None
    assert (race.margin.bound, race.margin.value) == (">", pytest.approx(5.0))


def test_every_link_has_its_race() -> None:
    table = pd.concat(
        [cells({"ddp": (slow,), "single": (20.0,)}, bps, rtt) for bps, rtt, slow in ((1e6, 0.1, 30.0), (1e7, 0.1, 5.0))]
    )
    races = fastest_by_link(table.drop_duplicates(["arm", "seed", "bandwidth_bps"]).reset_index())
    assert [(race.bandwidth_bps, race.arm) for race in races] == [(1e6, "single"), (1e7, "ddp")]
