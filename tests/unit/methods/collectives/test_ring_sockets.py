"""A ring's own connections: the bits of the ring over gloo, and nobody waits for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bwbench import distribute
from bwbench.base.errors import ConfigError
from bwbench.methods.collectives import ring_sockets
from bwbench.methods.collectives.rank_threads import round_of, run_ranks
from bwbench.methods.collectives.ring import Ring
from bwbench.methods.collectives.ring_sockets import LANES, RingSockets, agree_on, listening
from bwbench.methods.collectives.transport import Members, Round
from bwbench.methods.native import find, left_out, native
from bwbench.network.link import UNSHAPED
from bwbench.training.library import distribution
from bwbench.training.library.agreement import told_by_all
from bwbench.training.library.groups import own_address
from tests.contract.test_collectives import inputs, make_codec
from tests.unit.training.library.together import batch, loss_of, small_model, together, values

pytestmark = pytest.mark.skipif(find().library is None, reason=find().words)
LOOPBACK = "127.0.0.1"


def connected(group: Any, rank: int, limit_s: float = 20.0) -> RingSockets:
    sockets, _ = agree_on(native(), lambda: LOOPBACK, partial(told_by_all, group=group), rank, limit_s)
    assert sockets is not None
    sockets.largest_bytes = 2**30  # however busy the machine is
    return sockets


def ring(group: Any, sockets: RingSockets | None) -> Ring:
    ours = Ring()
    ours.connect(group, UNSHAPED)
    ours.sockets = sockets
    return ours


@pytest.mark.parametrize("num_elements", [8_193, 40_007, 300_001, 2_000_003])
@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5])
def test_the_bits_and_bytes_of_the_ring_over_gloo(num_ranks, num_elements):
    tensors = inputs(num_ranks, num_elements)
    tensors[0][5], tensors[1][7], tensors[0][num_elements // 2] = torch.inf, torch.nan, 1e-42

    def work(group, rank):
        found = []
        for sockets in (None, connected(group, rank)):
            ours = ring(group, sockets)
            bucket = tensors[rank].clone()
            ours.average(bucket, make_codec("none"), round_of(group, 3))
            found.append((bucket, ours.meter.take()))
        sockets.close()
        return found

    results = run_ranks(num_ranks, work)
    for (there, counted), (here, own) in results:
        assert torch.equal(there.view(torch.int32), here.view(torch.int32))
        assert torch.equal(here.view(torch.int32), results[0][1][0].view(torch.int32)), "replicas are bit-equal"
        assert own.payload_bytes == counted.payload_bytes and own.codec_intervals


def test_values_that_are_fewer_than_ranks_and_pieces_of_floats_in_any_cut():
    """Below the size that goes directly; and through sockets so small that no float arrives whole for long."""

    def work(group, rank):
        sockets = connected(group, rank)
        small = torch.tensor([float(rank)])
        sockets.average(small, 0)
        lane = sockets._lanes[0]
        for connection in (lane.to, lane.from_):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        bucket = torch.arange(5_001.0) + rank
        sockets._lanes[0] = lane._replace(room=lane.room[:7])
        sockets.average(bucket, 0)
        sockets.close()
        return small, bucket

    for small, bucket in run_ranks(3, work):
        assert small.item() == 1.0
        assert torch.equal(bucket, torch.arange(5_001.0) + 1)


def test_ranks_may_begin_two_buckets_in_another_order():
    def work(group, rank):
        sockets = connected(group, rank)
        buckets = [torch.full((100_000,), float(rank + number)) for number in range(4)]
        for numbers in ((0, 1), (2, 3)):
            order = numbers if rank % 2 else numbers[::-1]
            threads = [threading.Thread(target=sockets.average, args=(buckets[number], number)) for number in order]
            for thread in threads:
                thread.start()
                time.sleep(0.05)
            for thread in threads:
                thread.join()
        sockets.close()
        return buckets

    for buckets in run_ranks(4, work):
        assert [float(bucket[0]) for bucket in buckets] == [1.5, 2.5, 3.5, 4.5]
        assert all((bucket == bucket[0]).all() for bucket in buckets)


def test_some_of_the_ranks_other_codecs_and_buckets_without_a_lane_go_over_gloo():
    tensors = inputs(3, 30_000)

    def work(group, rank):
        sockets = connected(group, rank)
        ours = ring(group, sockets)
        for codec, tag in (("fp16", 0), ("none", LANES)):
            ours.average(tensors[rank].clone(), make_codec(codec), round_of(group, tag))
        assert not sockets._lanes
        sockets.close()
        assert not sockets.carries(Round(0, Members((0, 1), 0)), 120_000)
        return True

    assert all(run_ranks(3, work))


def test_a_peer_that_goes_or_says_nothing_is_an_error_in_time():
    def work(group, rank, *, leaves):
        sockets = connected(group, rank, limit_s=1.0)
        bucket = torch.ones(3_000_000)
        sockets.average(bucket, 0)
        if rank == 1:
            if not leaves:
                time.sleep(4.0)
            sockets.close()
            return None
        began = time.monotonic()
        with pytest.raises(RuntimeError, match="a peer is gone" if leaves else "for 1 s|a peer is gone"):
            sockets.average(bucket, 0)
        sockets.close()  # as a process that ends
        return time.monotonic() - began

    for leaves in (True, False):
        took = [seconds for seconds in run_ranks(3, partial(work, leaves=leaves)) if seconds is not None]
        assert len(took) == 2 and max(took) < 3.5


def test_a_stranger_is_not_let_in():
    def work(group, rank):
        sockets = connected(group, rank)
        address = sockets._listener.getsockname()
        silent = [socket.create_connection(address, timeout=10) for _ in range(8)]
        strangers = [socket.create_connection(address, timeout=10) for _ in range(2)]
        strangers[0].sendall(ring_sockets._HEADER.pack(b"x" * 16, 0, (rank - 1) % 2))
        strangers[1].sendall(b"GET / HTTP/1.1")
        strangers[1].shutdown(socket.SHUT_WR)
        told_by_all(None, group)  # they are there before the rank before is
        bucket = torch.full((20_000,), float(rank))
        sockets.average(bucket, 0)
        assert [stranger.recv(1) for stranger in strangers] == [b"", b""], "closed"
        for one in (*strangers, *silent, sockets):
            one.close()
        return bucket

    for bucket in run_ranks(2, work):
        assert (bucket == 0.5).all()


@pytest.mark.parametrize(
    ("seconds", "largest"), [(0.001, 200 * 2**18), (0.009, 5_825_422), (0.011, 2**18), (3.0, 2**18)]
)
def test_buckets_that_take_long_stay_with_gloo(seconds, largest, monkeypatch):
    """A trial of 256 kB sends 384 kB of it, which takes 10 ms at 300 Mbit/s; the slowest rank counts."""
    plain = RingSockets.try_out
    monkeypatch.setattr(RingSockets, "try_out", lambda ours: plain(ours) and (seconds if ours.place == 1 else 1e-4))

    def work(group, rank):
        sockets, words = agree_on(native(), lambda: LOOPBACK, partial(told_by_all, group=group), rank, 5.0)
        assert sockets is not None and words == f"buckets of up to {largest / 1e6:.3g} MB"
        sockets.close()
        everyone = Round(0, Members((0, 1, 2, 3), rank))
        return sockets.carries(everyone, largest), sockets.carries(everyone, largest + 4)

    assert run_ranks(4, work) == [(True, False)] * 4


def test_a_trial_leaves_latency_out(monkeypatch):
    """What few values take is subtracted: 30 hops of half a millisecond are no slow network."""
    clocks = threading.local()  # one a rank: a busy machine is no part of this
    monkeypatch.setattr(ring_sockets, "time", SimpleNamespace(monotonic=lambda: getattr(clocks, "now", 0.0)))

    class Slow:
        def ring(self, to, from_, values, *_):
            clocks.now = ring_sockets.time.monotonic() + 0.05 + (0.002 if len(values) > 4 else 0.0)
            values.fill_(1.5)

    def work(group, rank):
        sockets = connected(group, rank)
        sockets._native = Slow()
        seconds = sockets.try_out()
        sockets.close()
        return seconds

    assert run_ranks(4, work) == [pytest.approx(0.002)] * 4


@pytest.mark.parametrize("trouble", ["not compiled", "no address", "out of reach"])
def test_all_do_without_where_one_cannot(trouble, monkeypatch):
    monkeypatch.setattr(ring_sockets, "CONNECT_S", 1.0)

    def no_address():
        raise OSError("no such interface")

    def work(group, rank):
        compiled = None if trouble == "not compiled" and rank == 1 else native()
        host = no_address if trouble == "no address" and rank == 2 else lambda: LOOPBACK
        tell = partial(told_by_all, group=group)

        def misled(own):
            said = tell(own)
            if isinstance(said[0], list) and rank == 0:  # the next one has an address that leads elsewhere
                with listening(LOOPBACK) as nobody:
                    said[1] = [1, *nobody.getsockname(), said[1][3]]
            return said

        return agree_on(compiled, host, misled if trouble == "out of reach" else tell, rank, 5.0)

    found = run_ranks(3, work)
    assert [sockets for sockets, _ in found] == [None, None, None]
    said = {"not compiled": "nothing was compiled", "no address": "no such interface", "out of reach": "do not reach"}
    assert all(said[trouble] in words for _, words in found)


def test_scripts_train_to_the_same_bits_with_and_without(monkeypatch):
    found: list[Any] = []

    def train(rank):
        model = small_model()
        model.insert(1, torch.nn.Linear(40, 2_000))  # large enough to go round
        model.insert(2, torch.nn.Linear(2_000, 40))
        for parameter in (*model[1].parameters(), *model[2].parameters()):
            torch.nn.init.constant_(parameter, 0.01)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with distribute(model, optimizer, "ring") as handle:
            found.append(handle._running._context.collective.sockets)
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, batch(rank, step)).backward()
                optimizer.step()
        return values(model)

    monkeypatch.setattr(distribution, "own_address", lambda: LOOPBACK)
    monkeypatch.setattr(ring_sockets, "SMALL_BYTES", 2**30)
    here = together(3, train)
    assert len(found) == 3 and all(found) and all(len(sockets._lanes) == 1 for sockets in found)
    found.clear()
    with left_out():
        there = together(3, train)
    assert found == [None, None, None]
    monkeypatch.setenv(distribution.RING_SWITCH, "gloo")
    assert together(3, train) and found[3:] == [None, None, None]
    monkeypatch.setenv(distribution.RING_SWITCH, "glo")
    with pytest.raises(ConfigError, match="'glo' in the environment; write 'gloo'"):
        together(3, train)
    for own, other in zip(here, there, strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_has_run_out_of_data_is_not_waited_for(early, monkeypatch):
    """``join``: the others go on over gloo, and come to what they come to without sockets."""

    def train(rank):
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with distribute(model, optimizer, "ring", timeout_s=20) as handle:
            with handle.join():
                for step in range(2 if rank == early else 4):
                    optimizer.zero_grad()
                    loss_of(model, batch(rank, step)).backward()
                    optimizer.step()
        return values(model)

    monkeypatch.setattr(distribution, "own_address", lambda: LOOPBACK)
    monkeypatch.setattr(ring_sockets, "SMALL_BYTES", 2**30)
    monkeypatch.setattr("bwbench.methods.collectives.ring.LARGEST_DIRECT_CHUNK_BYTES", 0)
    here = together(3, train)
    monkeypatch.setenv(distribution.RING_SWITCH, "gloo")
    for own, other in zip(here, together(3, train), strict=True):
        assert torch.equal(own, other)


def test_closing_ends_whoever_waits_and_whoever_comes_later():
    def work(group, rank):
        sockets, errors = connected(group, rank), []
        sockets.average(torch.ones(1_000), 0)
        if rank == 0:

            def wait(tag):
                with pytest.raises(RuntimeError) as error:
                    sockets.average(torch.ones(1_000), tag)
                errors.append(str(error.value))

            waiting = [threading.Thread(target=wait, args=(tag,)) for tag in (0, 1)]
            for thread in waiting:
                thread.start()
            time.sleep(0.3)
            began = time.monotonic()
            sockets.close()
            for thread in waiting:
                thread.join()
            for tag in (0, 2):
                wait(tag)
            assert time.monotonic() - began < 2.0 and len(errors) == 4, errors
        told_by_all(None, group)
        sockets.close()

    run_ranks(2, work)


def test_what_is_to_be_paced_and_what_is_no_ring_has_none():
    group = SimpleNamespace(size=lambda: 2, rank=lambda: 0)
    groups: Any = SimpleNamespace(data=group)
    for word, collective, expected in (
        ("unpaced", Ring(), True),
        ("200 Mbit/s", Ring(), False),
        ("unpaced", SimpleNamespace(takes_sockets=False), False),
    ):
        parts: Any = SimpleNamespace(link=SimpleNamespace(word=word), collective=collective)
        assert distribution.takes_sockets(parts, groups) == expected


def test_where_this_rank_listens(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert own_address() == LOOPBACK
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    with pytest.raises(OSError, match="no interface 'nowhere0'"):
        own_address()
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert own_address() == LOOPBACK
    assert issubclass(ConfigError, Exception) and os.environ.get("GLOO_SOCKET_IFNAME") is None
