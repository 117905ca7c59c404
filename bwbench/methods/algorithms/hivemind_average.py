"""hivemind's averaging of parameters, the peer among libraries for training over slow networks, in this harness."""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import os
import time
from collections.abc import Sequence
from typing import Any

import psutil
from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.algorithm import ELEMENT_BYTES, bucket_payloads
from bwbench.methods.algorithms.buckets import RunningLocally
from bwbench.methods.buffers import moved_to_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import MakeCodec, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

_ADDRESSES_BYTES = 4096  # of the text that tells where rank 0 listens
_RUN = "bwbench"
_START_S = 60.0  # of hivemind's daemon; its own 15 s are short where nodes share a busy machine
# Peers look for one another so long. One whose exchange has failed looks for others that have had theirs: the sooner it
# gives up, the sooner all of them can begin again. One that is early waits for the others so long.
_ATTEMPT_S = 60.0
_LEAST_S = 6.0  # a peer declares itself for 5 s, and hivemind takes no shorter limit than that


class HivemindConfig(ComponentConfig):
    """Options of ``hivemind``.

    Attributes:
        period: optimizer steps from one average of the parameters to the next.
        timeout_s: limit of one average, finding one another and beginning again included; beyond it training fails.
    """

    period: int = Field(16, ge=1)
    timeout_s: float = Field(600.0, ge=_LEAST_S, alias="timeout")


class HivemindAverage(AbstractAlgorithm):
    """Plain local steps, and every ``period`` of them ``DecentralizedAverager.step`` of hivemind over all parameters.

    All ranks wait for its result, and begin again where one of them got none. Peers find one another through a
    distributed hash table whose daemon listens on the data network; everything that hivemind says crosses the shaped
    link. Its processes are children of the worker and end with it. Collective and codec are hivemind's own: a butterfly
    all-reduce in fp32.
    """

    Config = HivemindConfig
    options: HivemindConfig
    sends = False  # by a collective of ours
    fixed_time = "its peers find one another and give up by clocks of their own; compare it without dilation"
    replicas_equal = "never"  # peers add the differences that they are sent, which rounds

    @classmethod
    def missing(cls) -> str | None:
        """The package itself."""
        if importlib.util.find_spec("hivemind") is not None:
            return None
        return "it is hivemind's own code, which is not installed; pip install 'bwbench[hivemind]' brings it"

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """None of ours."""
        return "hivemind brings its own way to average; use collective: none" if collective.needs_peers else None

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """A butterfly: every node sends N-1 parts and gets them back averaged; the daemons' own talk left out."""
        size = sum(bucket_payloads(parameter_shapes, None, make_codec))
        each = (2 * (num_nodes - 1) / num_nodes * size,) * num_nodes
        return Traffic(each, each, 2).scaled(1 / self.options.period)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Local steps, and those that end in an average."""
        return (Phase("rounds", period=self.options.period),)

    def for_timing(self) -> ComponentConfig:
        """Averages come more often."""
        return self.options.model_copy(update={"period": min(self.options.period, TIMED_PERIOD)})

    def attach(self, context: Context) -> AbstractRunning:
        """Start hivemind's processes. Raises ConfigError where hivemind is not installed."""
        return RunningHivemind(context, self.options)


class RunningHivemind(RunningLocally):
    """One rank of ``hivemind``, with its processes; rank 0 tells the others where it listens."""

    _steps_key = "step"
    _failure: str | None = None  # of this rank's last attempt
    _averager: Any = None
    _table: Any = None

    def __init__(self, context: Context, options: HivemindConfig) -> None:
        super().__init__(context)
        self._options = options
        assert context.data_group is not None
        try:
            hivemind: Any = importlib.import_module("hivemind")
        except ImportError as error:
            raise ConfigError(
                f"algorithm 'hivemind' needs hivemind: pip install 'bwbench[hivemind]' ({error})"
            ) from None
        group = context.data_group
        told = torch.zeros(_ADDRESSES_BYTES, dtype=torch.uint8)
        listen = [f"/ip4/{_own_address()}/tcp/0"]
        if group.rank() == 0:
            self._table = hivemind.DHT(start=True, host_maddrs=listen, startup_timeout=_START_S)
            text = "\n".join(map(str, self._table.get_visible_maddrs())).encode()
            told[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        group.broadcast(told, 0).wait()
        if group.rank() != 0:
            peers = bytes(told.tolist()).rstrip(b"\0").decode().split("\n")
            self._table = hivemind.DHT(start=True, host_maddrs=listen, initial_peers=peers, startup_timeout=_START_S)
        self._averager = hivemind.averaging.DecentralizedAverager(
            averaged_tensors=[moved_to_host(parameter).clone() for parameter in self._parameters],
            dht=self._table,
            prefix=_RUN,
            target_group_size=group.size(),
            min_group_size=group.size(),
            allow_state_sharing=False,
            allreduce_timeout=options.timeout_s,
            start=False,
        )
        try:
            self._averager.run_in_background(timeout=_START_S)
        except concurrent.futures.TimeoutError:
            raise RuntimeError(f"hivemind's averager did not start within {_START_S:g} s") from None
        # A peer that looks for others before they listen fails, and looks again: many times on a slow machine.
        group.barrier().wait()
        size = ELEMENT_BYTES * sum(parameter.numel() for parameter in self._parameters)
        self.bucket_bytes = [size]  # all parameters at once
        self._round_bytes = round(2 * (group.size() - 1) / group.size() * size)

    def after_update(self) -> ExchangeReport | None:
        """Every ``period`` steps: wait for the mean of all parameters. Raises RuntimeError where there is none."""
        self._num_steps += 1
        return self._average() if self._num_steps % self._options.period == 0 else None

    def agreement_step(self, step: int) -> int:
        """The next step with an average."""
        return -(-step // self._options.period) * self._options.period

    def rehearse(self, plain_backward_s: float) -> None:
        """One average, so that peers know one another."""
        self._average()

    def close(self) -> None:
        """End hivemind's processes. Safe to call twice."""
        for service in (self._averager, self._table):
            if service is not None:
                service.shutdown()
        self._averager = self._table = None

    def _average(self) -> ExchangeReport:
        begin = time.monotonic()
        limit_s = self._options.timeout_s
        while not self._all_have_a_mean(begin + limit_s - time.monotonic()):
            if time.monotonic() > begin + limit_s - _LEAST_S:
                raise RuntimeError(f"hivemind formed no average within {limit_s:g} s ({self._failure or 'elsewhere'})")
        with torch.no_grad(), self._averager.get_tensors() as shared:
            for tensor, parameter in zip(shared, self._parameters, strict=True):
                parameter.copy_(tensor)
        return ExchangeReport(begin, exposed_s=time.monotonic() - begin, payload_bytes=self._round_bytes)

    def _all_have_a_mean(self, left_s: float) -> bool:
        """One attempt on every rank. By itself, hivemind would let those with a mean go on, and the others wait."""
        with torch.no_grad(), self._averager.get_tensors() as shared:
            for tensor, parameter in zip(shared, self._parameters, strict=True):
                tensor.copy_(parameter)
        step = self._averager.step(timeout=min(_ATTEMPT_S, left_s), wait=False)
        try:
            self._failure = None if step.result(left_s) is not None else "no group was found"
        except Exception as error:  # hivemind passes on whatever its processes and its daemon raise
            step.cancel()
            self._failure = repr(error)
        failed = torch.tensor([float(self._failure is not None)])
        self._context.control.average(failed)
        return not failed.item()


def _own_address() -> str:
    """IPv4 address of the data interface; of this host where none is named."""
    interface = os.environ.get("BWBENCH_DATA_INTERFACE")
    found = [a.address for a in psutil.net_if_addrs().get(interface or "lo", []) if a.family.name == "AF_INET"]
    return found[0] if found else "127.0.0.1"
