"""Arms that keep their look, labels that do not overlap, and numbers as people write them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fixtures_records import PRESETS, role_of_preset
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.markers import MarkerStyle

from bwbench.methods.roles import METHOD, REFERENCE
from bwbench.results.figures import captions
from bwbench.results.figures.marks import host_bound_look, spread
from bwbench.results.figures.style import PART_COLORS, arm_style, told_apart


def grey(color: str) -> float:
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_every_preset_has_a_colour_and_a_marker_of_its_own() -> None:
    for what in ("color", "marker"):
        arms = set(PRESETS) - {"ddp", "no-communication"}
        used = [getattr(arm_style(arm, role_of_preset(arm)), what) for arm in arms]
        assert len(set(used)) == len(used)


def test_presets_can_be_told_apart_in_grey() -> None:
    for one, other in itertools.combinations((arm_style(arm, role_of_preset(arm)) for arm in PRESETS), 2):
        same_grey = abs(grey(one.color) - grey(other.color)) < 0.1
        assert not same_grey or one.marker != other.marker or one.line != other.line


def test_presets_differ_in_outline_or_dashes_where_marks_are_small() -> None:
    alike = {"h": "o", "H": "o", "8": "o", "d": "D", "P": "X"}  # at the size of a mark
    looks = [arm_style(arm, role_of_preset(arm)) for arm in PRESETS]
    seen = [(alike.get(look.marker, look.marker), str(look.line)) for look in looks]
    assert len(set(seen)) == len(seen), sorted(seen)


def test_an_unknown_arm_always_looks_the_same() -> None:
    assert arm_style("parameter-server-fp16", METHOD) == arm_style("parameter-server-fp16", METHOD)
    looks = {arm_style(f"ring-my-codec-{number}", METHOD) for number in range(30)}
    assert len(looks) > 20


def test_a_method_has_one_colour_whatever_it_learns_with() -> None:
    for method in ("ring-fp16", "muloco(period=16)", "of-a-plugin(block=256)"):
        name, _, options = method.removesuffix(")").partition("(")
        learning = ["optimizer=muon", "weight_average=ema"]
        other = f"{name}({','.join([*filter(None, [options]), *learning])})"
        assert arm_style(other, METHOD) == arm_style(method, METHOD)
        with told_apart({method: METHOD, other: METHOD}):
            looks = [arm_style(arm, METHOD) for arm in (method, other)]
        assert looks[0].color == looks[1].color and looks[0].marker != looks[1].marker


def test_arms_of_one_picture_do_not_share_both_colour_and_marker() -> None:
    mine = "lloyd-two(block=256)"
    same = next(name for name in map("my-codec-{}".format, range(10_000))
                if (look := arm_style(name, METHOD)).color == arm_style(mine, METHOD).color
                and look.marker == arm_style(mine, METHOD).marker)  # fmt: skip
    roles = {mine: METHOD, same: METHOD, "ddp": METHOD, "single": REFERENCE}
    with told_apart(roles):
        looks = {arm: arm_style(arm, role) for arm, role in roles.items()}
        assert arm_style("of-another-picture", METHOD)
    assert len({(look.color, look.marker) for look in looks.values()}) == 4
    assert looks["ddp"] == arm_style("ddp", METHOD) and looks[mine] == arm_style(mine, METHOD), "first by name"
    assert looks[same].color == arm_style(same, METHOD).color and looks[same].line == arm_style(same, METHOD).line
    many = {f"arm-{number}": METHOD for number in range(72)}  # as many as there are colours times markers
    with told_apart(many):
        assert len({(look.color, look.marker) for look in (arm_style(arm, METHOD) for arm in many)}) == 72
    with told_apart({**many, "one-more": METHOD, "top-k": METHOD}):
        assert arm_style("one-more", METHOD) == arm_style("one-more", METHOD)


@pytest.mark.parametrize("marker", sorted({arm_style(arm, role_of_preset(arm)).marker for arm in PRESETS}))
def test_a_host_bound_mark_is_the_arms_own_and_no_arms_look(marker: str) -> None:
    look = host_bound_look(marker, 4.4, "#0072b2")
    shape = MarkerStyle(marker)
    outline, drawn = shape.get_path().transformed(shape.get_transform()), look["marker"]
    assert np.allclose(drawn.vertices[: len(outline.vertices)], outline.vertices)  # still tells the arm
    assert len(drawn.vertices) > len(outline.vertices) and look["markerfacecolor"] == "white"  # the dot, inside
    assert np.allclose(drawn.get_extents().bounds, outline.get_extents().bounds)


def test_neighbouring_parts_of_a_step_differ_in_lightness() -> None:
    order = ["compute_s", "pad_s", "codec_s", "peers_s", "link_s", "optimizer_s", "other_s"]
    for one, other in itertools.pairwise(order):
        assert abs(grey(PART_COLORS[one]) - grey(PART_COLORS[other])) > 0.08


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    placed = spread(wanted, 10.0, 0.0, 200.0)
    ranked = [position for _, position in sorted(zip(wanted, placed, strict=True))]
    for lower, upper in itertools.pairwise(sorted(placed)):
        assert upper - lower > 10.0 - 1e-6
    assert sorted(ranked) == pytest.approx(sorted(placed))
    assert min(placed) > -1e-6 and max(placed) < 200.0 + 1e-6


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([50.0, 10.0, 100.0], 10.0, 0.0, 200.0) == [50.0, 10.0, 100.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0032, "3.20 ms"),
        (0.693, "0.693 s"),
        (3.42, "3.42 s"),
        (41.31, "41.3 s"),
        (912.0, "15.2 min"),
        (9e4, "25.0 h"),
    ],
)
def test_times(value: float, text: str) -> None:
    assert captions.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [(3.2159, "", "3.22×"), (0.0604, "", "0.06×"), (12.0, ">", "> 12.0×"), (120.0, "", "120×")],
)
def test_ratios(value: float, bound: str, text: str) -> None:
    assert captions.ratio(value, bound) == text


def test_ranges_share_their_unit() -> None:
    assert captions.span("1 Mbit/s", "100 Mbit/s") == "1–100 Mbit/s"
    assert captions.span("500 kbit/s", "1 Mbit/s") == "500 kbit/s–1 Mbit/s"
    assert captions.span("5 ms", "5 ms") == "5 ms"
