"""How the relay is told that traces and outages begin."""

from __future__ import annotations

import time

from bwbench.network.relay.playback import Playback


class Player:
    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def play(self, since_s: float) -> None:
        self.told.append(("play", since_s))

    def hold(self, now_s: float) -> None:
        self.told.append(("hold", now_s))


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
    ((word, since_s),) = player.told
    assert word == "play" and before_s <= since_s + 1e-6 and since_s <= after_s + 1e-6


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
    assert [word for word, _ in player.told] == ["play", "play", "hold"]
