"""``bwbench data``: where the folder is, what is fetched, what is said on which stream."""

from __future__ import annotations

import hashlib
import io

import pytest
from typer.testing import CliRunner

from bwbench.base.errors import ConfigError
from bwbench.cli.machine_commands import data, open_display
from bwbench.training.datasets.dataset import RemoteFile
from bwbench.training.datasets.fetch import DownloadProgress, FetchError
from bwbench.training.datasets.tinyshakespeare import TinyShakespeare
from tests.unit.training.datasets.local_server import serve

CONTENT = b"To be, or not to be\n" * 1000


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("BWBENCH_DATA", str(tmp_path / "data"))
    with serve() as state:
        state.files["/input.txt"] = CONTENT
        digest = hashlib.sha256(CONTENT).hexdigest()
        file = RemoteFile("tinyshakespeare/input.txt", sha256=digest, url=state.url("/input.txt"))
        monkeypatch.setattr(TinyShakespeare, "files", (file,))
        yield state


def invoke(*arguments):
    return CliRunner().invoke(data, list(arguments))


def test_path_is_all_that_path_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("BWBENCH_DATA", str(tmp_path / "with a space"))
    result = invoke("path")
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'with a space'}\n"


def test_fetch_brings_the_files_once_and_speaks_on_stderr(server, tmp_path):
    result = invoke("fetch", "tinyshakespeare", "digits", "tinyshakespeare")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"tinyshakespeare: downloading {server.url('/input.txt')} (0.0 MB)",
        f"tinyshakespeare: 1 file downloaded to {tmp_path / 'data'}",
        "digits: nothing to download",
    ]
    assert (tmp_path / "data" / "tinyshakespeare" / "input.txt").read_bytes() == CONTENT
    again = invoke("fetch", "tinyshakespeare")
    assert again.stderr == f"tinyshakespeare: already in {tmp_path / 'data'}\n"


def test_unknown_names_are_refused_before_anything_is_fetched(server, tmp_path):
    result = invoke("fetch", "tinyshakespeare", "tinyshakespear")
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'tinyshakespeare'?" in str(result.exception)
    assert server.requests == []
    assert not (tmp_path / "data").exists()


def test_a_failing_download_is_the_machines_fault(server):
    server.files.clear()
    result = invoke("fetch", "tinyshakespeare")
    assert isinstance(result.exception, FetchError)
    assert result.exception.exit_code == 3


def test_no_name_is_a_usage_error():
    assert invoke("fetch").exit_code == 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_a_bar_with_names_as_they_are(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with open_display("set", stream) as report:
        for received in (0, 5_000_000, 10_000_000):
            report(DownloadProgress(RemoteFile("set/[red]x[/red].gz"), received, 10_000_000))
    assert "[red]x[/red].gz" in stream.getvalue()
    assert "10.0" in stream.getvalue()
