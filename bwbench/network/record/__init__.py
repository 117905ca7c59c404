"""Measuring a network of one's own, second by second, into trace files that links can follow."""

from bwbench.network.record.listener import Listener, listen
from bwbench.network.record.record_session import DEFAULT_PORT, MAX_SECONDS
from bwbench.network.record.recording import IPERF3_PORT, record, record_with_iperf3
from bwbench.network.record.summary import DIRECTIONS, OnSecond, Recorded, RecordSummary

__all__ = [
    "DEFAULT_PORT",
    "DIRECTIONS",
    "IPERF3_PORT",
    "MAX_SECONDS",
    "Listener",
    "OnSecond",
    "RecordSummary",
    "Recorded",
    "listen",
    "record",
    "record_with_iperf3",
]
