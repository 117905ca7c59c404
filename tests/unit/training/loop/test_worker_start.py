from __future__ import annotations

import pytest
import torch.distributed as dist

from bwbench.base import emulated_time
from bwbench.methods.collectives.rank_threads import run_ranks
from bwbench.training.loop.process_groups import GROUP_TIMEOUT, Groups, group_timeout
from bwbench.training.loop.worker import main, new_attempt


def test_each_start_by_hand_makes_a_new_attempt(tmp_path):
    from bwbench.training.loop.control import ControlPath

    alone = Groups(ControlPath())
    assert new_attempt(tmp_path, alone).name == "attempt-1"
    assert new_attempt(tmp_path, alone).name == "attempt-2"
    store = dist.HashStore()

    def work(group, rank):
        return new_attempt(tmp_path, Groups(ControlPath(group), group, store))

    assert run_ranks(3, work) == [tmp_path / "attempt-3"] * 3


@pytest.mark.parametrize(("dilation", "times"), [(1.0, 1), (0.25, 1), (8.0, 8)])
def test_messages_may_take_as_much_longer_as_everything_does(dilation, times):
    emulated_time.dilate(dilation)
    try:
        assert group_timeout() == times * GROUP_TIMEOUT
    finally:
        emulated_time.dilate(1.0)


def test_usage(capsys):
    assert main([]) == 2
    assert "CELL_JSON" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "\x00\xff"])
def test_a_file_that_is_no_cell(tmp_path, content, monkeypatch, capsys):
    from bwbench.training.loop import worker

    monkeypatch.setattr(worker, "leave_process", lambda status: (_ for _ in ()).throw(SystemExit(status)))
    monkeypatch.delenv("BWBENCH_CHANNEL_FD", raising=False)
    (tmp_path / "cell.json").write_text(content)
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "cell.json")])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err
