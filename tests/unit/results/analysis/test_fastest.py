"""Who wins on which link, and whether that is certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import pytest
from fixtures_records import role_of_preset

from bwbench.results.figures.arm_map import MapCell, cells_of, order_of
from bwbench.results.figures.best_algorithm import races_by_link

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


def cells_by_arm(times: Times) -> dict[str, MapCell]:
    (race,) = races_by_link(cells(times))
    return cells_of(race.best)


def test_one_node_alone_takes_part_and_who_is_certainly_slower_is_not_among_the_best() -> None:
    found = cells_by_arm({"ddp": (40.0, 44.0), "diloco": (10.0, 11.0), "single": (20.0, 22.0)})
    assert found["single"].over == pytest.approx(2.0) and found["ddp"].over == pytest.approx(4.0)
    assert [arm for arm, cell in found.items() if cell.best] == ["diloco"]
    assert not any(cell.untold for cell in found.values())


def test_who_may_be_as_fast_is_among_the_best() -> None:
    found = cells_by_arm({"ddp": (10.0, 12.0, 11.0), "ring": (11.0, 11.5, 11.0)})
    assert all(cell.best for cell in found.values())


def test_one_repeat_tells_nothing() -> None:
    found = cells_by_arm({"ddp": (10.0,), "ring": (11.0,)})
    assert all(cell.untold and not cell.best for cell in found.values())


def test_a_free_network_takes_no_part() -> None:
    found = cells_by_arm({"no-communication": (1.0, 1.1), "ddp": (10.0, 11.0)})
    assert set(found) == {"ddp"} and found["ddp"].best and not found["ddp"].untold


def test_nobody_wins_where_nobody_arrives_and_a_bound_is_a_bound() -> None:
    (nobody,) = races_by_link(cells({"ddp": (None, None), "ring": (None, None)}))
    assert nobody.best.first is None and cells_of(nobody.best) == {}
    found = cells_by_arm({"ddp": (None, None), "ring": (20.0, 20.0)})
    assert found["ddp"].bound and found["ddp"].over == pytest.approx(5.0) and not found["ring"].bound


def test_every_link_has_its_race() -> None:
    table = pd.concat(
        [cells({"ddp": (slow,), "single": (20.0,)}, bps, rtt) for bps, rtt, slow in ((1e6, 0.1, 30.0), (1e7, 0.1, 5.0))]
    )
    races = races_by_link(table.drop_duplicates(["arm", "seed", "bandwidth_bps"]).reset_index())
    assert [(race.bandwidth_bps, race.best.first) for race in races] == [(1e6, "single"), (1e7, "ddp")]


def test_a_map_has_the_fastest_on_the_mean_on_top_and_whoever_never_raced_with_a_winner_below() -> None:
    fast, slow = (cells({"ddp": (ddp, ddp), "ring": (10.0, 10.0)}) for ddp in (5.0, 30.0))
    assert order_of([races_by_link(one)[0].best for one in (fast, slow)]) == ["ring", "ddp"]
    (nobody,) = races_by_link(cells({"async": (None, None)}))
    assert order_of([races_by_link(fast)[0].best, nobody.best]) == ["ddp", "ring", "async"]
