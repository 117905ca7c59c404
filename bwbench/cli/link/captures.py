"""``bwbench link run --pcap``: what crosses the link, a file a node."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bwbench.base.errors import ConfigError, LinkError
from bwbench.base.messages import first_line
from bwbench.base.start_module import module_command
from bwbench.network.network import Network, NodeProcess
from bwbench.network.probe.capture import CHANNEL_FD, FILE_FD

START_LIMIT_S = 20.0
END_LIMIT_S = 10.0


def capture_files(file: str, num_nodes: int) -> list[Path]:
    """A file a node: ``{rank}`` in the name is its number, which is else put before the suffix: link.pcap, link-0.pcap.

    Raises ConfigError where one of them is to lie in a folder that does not exist.
    """
    path = Path(file)
    name = path.name if "{rank}" in file else f"{path.stem}-{{rank}}{path.suffix}"
    files = [Path(str(path.with_name(name)).replace("{rank}", str(rank))) for rank in range(num_nodes)]
    for one in files:
        if not one.parent.is_dir():
            raise ConfigError(f"--pcap {file}: there is no folder {one.parent}; make it, or name another")
    return files


@contextlib.contextmanager
def captured(network: Network, files: Sequence[Path]) -> Iterator[None]:
    """Capture every node's link into its file, for as long as the block lasts; says on stderr what was missed."""
    captures: list[tuple[Path, NodeProcess, int]] = []
    try:
        for rank, path in enumerate(files):
            captures.append((path, *_start(network, rank, path)))
        for path, _, channel in captures:
            if _line(channel, START_LIMIT_S) != b"ready\n":
                raise LinkError(
                    f"cannot capture into {path}: the capturing process has ended, for want of memory perhaps"
                )
        yield
    finally:
        for _, process, _ in captures:
            process.send_signal(signal.SIGTERM)
        for path, _, channel in captures:
            last = b"" if network.is_lost else _line(channel, END_LIMIT_S)  # lost: nobody has told it to end
            _, _, missed = last.decode().partition(" ")
            if not missed:
                print(f"{path} may lack frames: capturing ended before its time", file=sys.stderr)
            elif int(missed):
                print(f"{path} lacks {int(missed)} frames, which came too fast to be captured", file=sys.stderr)
            os.close(channel)


def _start(network: Network, rank: int, path: Path) -> tuple[NodeProcess, int]:
    read, write = os.pipe()
    argv = [*module_command("bwbench.network.probe.capture"), network.nodes[rank].data_interface]
    try:
        with path.open("wb") as file:
            fds = {FILE_FD: file.fileno(), CHANNEL_FD: write}
            return network.spawn(rank, argv, cwd="/", pass_fds=fds, few_rights=True), read
    except OSError as error:
        os.close(read)
        raise ConfigError(f"--pcap: cannot write {path}: {error.strerror}") from error
    finally:
        os.close(write)


def _line(channel: int, limit_s: float) -> bytes:
    try:
        return first_line(channel, limit_s)
    except TimeoutError:
        return b""
