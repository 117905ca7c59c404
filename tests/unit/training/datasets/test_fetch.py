"""Downloads against a server on the loopback interface: what goes wrong, what is kept, what the message says."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import socket
import tarfile

import pytest

from bwbench.base.registry import DATASETS
from bwbench.training.datasets import fetch as download
from bwbench.training.datasets.dataset import FileDigest, RemoteFile
from bwbench.training.datasets.fetch import FetchError, fetch
from tests.unit.training.datasets.local_server import serve

CONTENT = bytes(range(256)) * 4096  # 1 MiB


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as state:
        state.files["/data.bin"] = CONTENT
        yield state


@pytest.fixture
def file(server):
    return RemoteFile("some set/data.bin", sha256=sha256(CONTENT), url=server.url("/data.bin"))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "some set" / "data.bin"


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_arrives_under_its_name_and_progress_is_told(server, file, target, tmp_path):
    told = []
    assert fetch((file,), tmp_path, told.append) == [target]
    assert target.read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]
    received = [progress.received_bytes for progress in told]
    assert received == sorted(received)
    assert received[-1] == len(CONTENT)
    assert {progress.total_bytes for progress in told} == {len(CONTENT)}


def test_what_is_there_already_is_not_asked_for(server, file, target, tmp_path):
    fetch((file,), tmp_path)
    assert fetch((file,), tmp_path) == []
    assert len(server.requests) == 1


def test_a_damaged_file_is_replaced(server, file, target, tmp_path):
    target.parent.mkdir()
    target.write_bytes(CONTENT[:-1] + b"?")
    assert fetch((file,), tmp_path) == [target]
    assert target.read_bytes() == CONTENT


def test_md5_will_do_where_nothing_better_is_known(server, tmp_path):
    file = RemoteFile("x", md5=hashlib.md5(CONTENT).hexdigest(), url=server.url("/data.bin"))
    assert fetch((file,), tmp_path) == [tmp_path / "x"]


def test_a_wrong_checksum_keeps_nothing(server, file, tmp_path):
    server.files["/data.bin"] = b"an error page, perhaps"
    with pytest.raises(FetchError, match="is not the file it should be: its sha256 is not") as caught:
        fetch((file,), tmp_path)
    assert file.url in str(caught.value)
    assert str(tmp_path / "some set" / "data.bin") in str(caught.value)
    assert names(tmp_path) == []
    assert len(server.requests) == 1


def test_a_broken_download_goes_on_where_it_stopped(server, file, target, tmp_path):
    server.cut_after = 300_000
    with pytest.raises(FetchError, match="ended after 300000 of 1048576 bytes.*The same command goes on"):
        fetch((file,), tmp_path)
    assert names(tmp_path) == ["data.bin.part"]
    server.cut_after = None
    told = []
    assert fetch((file,), tmp_path, told.append) == [target]
    assert target.read_bytes() == CONTENT
    assert server.requests[1] == ("/data.bin", "bytes=300000-")
    assert told[0].received_bytes == 300_000
    assert told[0].total_bytes == len(CONTENT)


def test_a_server_that_cannot_continue_sends_all_of_it(server, file, target, tmp_path):
    server.cut_after, server.ranges = 300_000, False
    with pytest.raises(FetchError):
        fetch((file,), tmp_path)
    server.cut_after = None
    fetch((file,), tmp_path)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("left_over", [b"of another version", CONTENT + b"more", b"?" * len(CONTENT)])
def test_a_wrong_beginning_is_thrown_away(server, file, target, tmp_path, left_over):
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(left_over)
    assert fetch((file,), tmp_path) == [target]
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_a_whole_part_file_only_needs_its_name(server, file, target, tmp_path):
    target.parent.mkdir()
    target.with_name("data.bin.part").write_bytes(CONTENT)
    assert fetch((file,), tmp_path) == [target]
    assert target.read_bytes() == CONTENT


def test_not_found(server, tmp_path):
    with pytest.raises(FetchError, match="the server answered 404") as caught:
        fetch((RemoteFile("x", sha256="0", url=server.url("/gone")),), tmp_path)
    assert f"put it at {tmp_path / 'x'}" in str(caught.value)
    assert names(tmp_path) == []


def test_nobody_listens(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(FetchError, match=r"could not be downloaded: .*refused"):
            fetch((RemoteFile("x", sha256="0", url=url),), tmp_path)


def test_a_silent_server_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(FetchError, match=r"could not be downloaded: .*timed out"):
            fetch((RemoteFile("x", sha256="0", url=url),), tmp_path)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "/etc/hostname", ""])
def test_only_http_is_downloaded(tmp_path, url):
    with pytest.raises(FetchError, match="only http and https"):
        fetch((RemoteFile("x", sha256="0", url=url),), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_nor_by_redirection(server, tmp_path, url):
    server.redirect_to = url
    with pytest.raises(FetchError):
        fetch((RemoteFile("x", sha256="0", url=server.url("/data.bin")),), tmp_path)
    assert names(tmp_path) == []


class FullDisk:
    """A file on a disk that takes so many bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, content):
        self.room -= len(content)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(content)

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_full_disk_is_said_and_the_beginning_kept(server, file, target, tmp_path, monkeypatch):
    real = download.download
    monkeypatch.setattr(
        "bwbench.training.datasets.fetch.download", lambda url, part, report: real(url, FullDisk(part, 600_000), report)
    )
    with pytest.raises(FetchError, match=r"data\.bin\.part could not be written: No space left.*BWBENCH_DATA"):
        fetch((file,), tmp_path)
    assert not target.exists()
    monkeypatch.undo()
    fetch((file,), tmp_path)
    assert target.read_bytes() == CONTENT
    assert server.requests[1][1] is not None


def test_a_folder_that_cannot_be_made(server, file, tmp_path):
    (tmp_path / "some set").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match="could not be written"):
        fetch((file,), tmp_path)


def test_two_at_once_do_not_write_into_one_file(server, file, target, tmp_path):
    target.parent.mkdir()
    with target.with_name("data.bin.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match="by another process"):
            fetch((file,), tmp_path)
    fetch((file,), tmp_path)
    assert target.read_bytes() == CONTENT


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def remote_archive(server, members, expected) -> RemoteFile:
    content = archive(members)
    server.files["/all.tar.gz"] = content
    digests = tuple(FileDigest(name, sha256=sha256(content)) for name, content in expected.items())
    return RemoteFile("all.tar.gz", sha256=sha256(content), url=server.url("/all.tar.gz"), members=digests)


def test_an_archives_members_are_taken_out_and_nothing_else(server, tmp_path):
    wanted = {"set/a.bin": b"a" * 1000, "set/b.bin": b""}
    file = remote_archive(server, {**wanted, "../outside": b"!", "set/readme": b"!"}, wanted)
    brought = fetch((file,), tmp_path / "data")
    assert brought == [tmp_path / "data" / name for name in wanted]
    assert names(tmp_path) == ["a.bin", "b.bin"]
    assert fetch((file,), tmp_path / "data") == []
    (tmp_path / "data" / "set" / "a.bin").unlink()
    assert fetch((file,), tmp_path / "data") == brought


@pytest.mark.parametrize("members", [{"set/a.bin": b"other"}, {"set/b.bin": b"a"}, {}])
def test_an_archive_with_other_members(server, tmp_path, members):
    file = remote_archive(server, members, {"set/a.bin": b"a"})
    with pytest.raises(FetchError, match="is not the file it should be"):
        fetch((file,), tmp_path)
    assert names(tmp_path) == []


def test_every_data_set_is_downloaded_from_the_web_with_a_checksum():
    for entry in DATASETS:
        for file in DATASETS.load(entry.name).files:
            assert file.url.startswith(("http://", "https://"))
            assert {len(digest.md5 or digest.sha256 or "") for digest in (file, *file.results)} <= {32, 64}
