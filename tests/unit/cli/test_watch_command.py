"""``bwbench watch`` as a command: what it takes of a folder. results/report/test_watch.py asks its server."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import pytest
from fixtures_records import Study, write_study

from bwbench.cli.watch_command import PORT
from bwbench.cli.watch_command import watch as command
from bwbench.results.page import watch
from bwbench.results.publish import publish


class EndedAtOnce(AbstractContextManager["EndedAtOnce"]):
    """A server whose user presses Ctrl-C."""

    url = "http://127.0.0.1:8765/"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def serve_forever(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("published", [False, True])
def test_published_sets_are_shown_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], published: bool
) -> None:
    write_study(tmp_path, Study("wifi", arms=("ring", "ddp"), repeats=1))
    (done,) = publish(tmp_path)
    done.path.parent.rename(done.path.parent.with_name("theirs"))
    asked = []

    def open_server(folder: Path, port: int, *, published: bool) -> EndedAtOnce:
        asked.append((folder, port, published))
        return EndedAtOnce()

    monkeypatch.setattr(watch, "open_server", open_server)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert command(tmp_path, published=published) == 0
    assert asked == [(tmp_path, PORT, published)]
    captured = capsys.readouterr()
    assert captured.out == f"{EndedAtOnce.url}\n"
    assert ("published sets left out: theirs; --published takes them" in captured.err) is not published
