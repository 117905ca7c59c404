"""How the relay is told that traces and outages begin."""

from __future__ import annotations

import time

import pytest

from bwbench.network.relay.shared_memory import Playback


class Player:
    """A schedule that keeps what it is told: when, and how far what varies had got by then (None: be steady)."""

    def __init__(self) -> None:
        self.told: list[tuple[float, float | None]] = []
        self.changes: list[bytes] = []

    def switch(self, now_s: float, since_s: float | None) -> None:
        self.told.append((now_s, None if since_s is None else now_s - since_s))

    def change(self, content: bytes) -> None:
        self.changes.append(content)


def test_the_relay_is_told_once_and_of_the_time_at_which_it_was_said() -> None:
    playback, player = Playback(), Player()
    playback.obey(player.switch, player.change)
    assert player.told == []
    before_s = time.monotonic()
    playback.play(0.0)
    after_s = time.monotonic()
    time.sleep(0.01)
    playback.obey(player.switch, player.change)
    playback.obey(player.switch, player.change)
    ((said_s, at_s),) = player.told
    assert before_s <= said_s + 1e-6 and said_s <= after_s + 1e-6 and at_s == 0.0


def test_playing_again_begins_anew_and_holding_twice_is_holding() -> None:
    playback, player = Playback(), Player()
    for _ in range(2):
        playback.play(0.0)
        playback.obey(player.switch, player.change)
        time.sleep(0.001)
    assert player.told[1][0] > player.told[0][0]
    for _ in range(2):
        playback.play(None)
        playback.obey(player.switch, player.change)
    assert [at_s for _, at_s in player.told] == [0.0, 0.0, None]


def test_a_link_that_has_played_before_goes_on_from_there_also_from_before_the_machine_started() -> None:
    for at_s in (12.5, time.monotonic() + 1e6):
        playback, player, before_s = Playback(), Player(), time.monotonic()
        playback.play(at_s)
        playback.obey(player.switch, player.change)
        ((said_s, told_s),) = player.told
        assert told_s == pytest.approx(at_s, abs=1e-6)
        assert before_s - 1e-6 <= said_s <= time.monotonic() + 1e-6, "it goes on now, wherever it goes on from"


def test_a_link_that_has_become_another_one_is_told_once_and_whole() -> None:
    playback, player = Playback(), Player()
    assert not playback.obey(player.switch, player.change)
    for content in (b"first", b"x" * 100_000, b""):
        playback.change(content)
        assert playback.obey(player.switch, player.change)
        assert not playback.obey(player.switch, player.change)
    assert player.changes == [b"first", b"x" * 100_000, b""] and player.told == []
    with pytest.raises(ValueError, match="too many"):
        playback.change(bytes(1 << 24))
