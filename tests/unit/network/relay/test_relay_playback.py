"""How the relay is told that traces and outages begin."""

from __future__ import annotations

import time

import pytest

from bwbench.network.relay.shared_memory import Playback


class Player:
    def __init__(self) -> None:
        self.told: list[tuple[str, float, float]] = []

    def play(self, now_s: float, at_s: float) -> None:
        self.told.append(("play", now_s, at_s))

    def hold(self, now_s: float) -> None:
        self.told.append(("hold", now_s, 0.0))


def test_the_relay_is_told_once_and_of_the_time_at_which_it_was_said() -> None:
    playback, player = Playback(), Player()
    playback.obey(player)
    assert player.told == []
    before_s = time.monotonic()
    playback.play()
    after_s = time.monotonic()
    time.sleep(0.01)
    playback.obey(player)
    playback.obey(player)
    ((word, said_s, at_s),) = player.told
    assert word == "play" and before_s <= said_s + 1e-6 and said_s <= after_s + 1e-6 and at_s == 0.0


def test_playing_again_begins_anew_and_holding_twice_is_holding() -> None:
    playback, player = Playback(), Player()
    for _ in range(2):
        playback.play()
        playback.obey(player)
        time.sleep(0.001)
    assert player.told[1][1] > player.told[0][1]
    for _ in range(2):
        playback.hold()
        playback.obey(player)
    assert [word for word, *_ in player.told] == ["play", "play", "hold"]


def test_a_link_that_has_played_before_goes_on_from_there_also_from_before_the_machine_started() -> None:
    for at_s in (12.5, time.monotonic() + 1e6):
        playback, player, before_s = Playback(), Player(), time.monotonic()
        playback.play(at_s)
        playback.obey(player)
        ((word, said_s, told_s),) = player.told
        assert word == "play" and told_s == pytest.approx(at_s, abs=1e-6)
        assert before_s - 1e-6 <= said_s <= time.monotonic() + 1e-6, "it goes on now, wherever it goes on from"
