"""Where files of data sets are found besides their own place, and what is said of missing and damaged ones."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from bwbench.base.errors import ConfigError
from bwbench.training.datasets.data_files import FileDigest, RemoteFile, is_whole
from bwbench.training.datasets.dataset import Splits
from bwbench.training.datasets.fetch import fetch
from bwbench.training.datasets.pictures import Cifar10, FashionMnist, Mnist
from tests.unit.training.datasets import official_format
from tests.unit.training.datasets.local_server import serve

SETS = {"mnist": (Mnist, "MNIST"), "fashion-mnist": (FashionMnist, "FashionMNIST")}


def same(left: Splits, right: Splits) -> bool:
    pairs = [(left.train, right.train), (left.validation, right.validation), (left.test, right.test)]
    return all(
        np.array_equal(one.inputs, two.inputs) and np.array_equal(one.targets, two.targets) for one, two in pairs
    )


def unpack(folder: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.gz"):
        (into / path.stem).write_bytes(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("form", ["unpacked", "torchvision", "torchvision unpacked"])
def test_idx_files_are_found_unpacked_and_where_torchvision_keeps_them(name: str, form: str, tmp_path: Path) -> None:
    kind, theirs = SETS[name]
    official_format.write_idx_files(tmp_path / "official" / name)
    data = tmp_path / "data"
    if form == "unpacked":
        unpack(tmp_path / "official" / name, data / name)
    elif form == "torchvision":
        shutil.copytree(tmp_path / "official" / name, data / theirs / "raw")
    else:
        unpack(tmp_path / "official" / name, data / theirs / "raw")
    dataset = kind(kind.Config())
    assert dataset.missing(data) is None
    assert same(dataset.load(data), dataset.load(tmp_path / "official"))
    found = dataset.find(data, f"{name}/train-images-idx3-ubyte.gz")
    found.write_bytes(found.read_bytes()[:-30])
    with pytest.raises(ConfigError, match="damaged") as caught:
        dataset.load(data)
    assert str(found) in str(caught.value)


def pickled(data: Path, batches: Path) -> None:
    """The Python version of the binary files in ``batches``."""
    data.mkdir(parents=True)
    for path in batches.glob("*.bin"):
        records = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
        content = {"batch_label": path.stem, "labels": records[:, 0].tolist(), "data": records[:, 1:].copy()}
        (data / path.stem).write_bytes(pickle.dumps(content, protocol=3))


@pytest.fixture
def torchvisions_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    official_format.write_cifar10(tmp_path / "official", monkeypatch)
    pickled(tmp_path / "data" / "cifar-10-batches-py", tmp_path / "official" / "cifar-10-batches-bin")
    return tmp_path / "data"


def test_cifar_is_read_from_torchvisions_pickles(torchvisions_cifar: Path, tmp_path: Path) -> None:
    dataset = Cifar10(Cifar10.Config())
    assert dataset.missing(torchvisions_cifar) is None
    assert same(dataset.load(torchvisions_cifar), dataset.load(tmp_path / "official"))


def by_python_2(labels: list[int], pixels: np.ndarray) -> bytes:
    """A pickle as the official ones are: byte strings of Python 2, and numpy's modules under their old names."""
    raw, (count, width) = pixels.tobytes(), pixels.shape
    dtype = b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
    state = b"(I1\n(I%d\nI%d\nt%sI00\nT%s%st" % (count, width, dtype, struct.pack("<i", len(raw)), raw)
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR%sb" % state
    numbers = b"(%sl" % b"".join(b"I%d\n" % label for label in labels)
    return b"(U\x04data%sU\x06labels%sU\x0bbatch_labelU\x03oned." % (array, numbers)


def test_pickles_of_python_2_are_read(torchvisions_cifar: Path, tmp_path: Path) -> None:
    for path in (torchvisions_cifar / "cifar-10-batches-py").iterdir():
        batch = pickle.loads(path.read_bytes())
        path.write_bytes(by_python_2(batch["labels"], batch["data"]))
    dataset = Cifar10(Cifar10.Config())
    assert same(dataset.load(torchvisions_cifar), dataset.load(tmp_path / "official"))


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_runs_nothing_and_wrong_ones_are_named(torchvisions_cifar: Path, tmp_path: Path) -> None:
    dataset, path = Cifar10(Cifar10.Config()), torchvisions_cifar / "cifar-10-batches-py" / "data_batch_2"
    good = pickle.loads(path.read_bytes())
    for content, said in (
        (pickle.dumps({**good, "data": Evil(tmp_path / "ran")}), "which no pictures need"),
        (pickle.dumps({**good, "labels": [*good["labels"][:-1], 10]}, protocol=3), "label 10, at most 9"),
        (pickle.dumps({**good, "labels": [*good["labels"][:-1], 300]}, protocol=3), "no pickled batch"),
        (pickle.dumps({**good, "data": good["data"][1:].copy()}, protocol=3), "expected"),
        (pickle.dumps([1, 2]), "no pickled batch"),
        (path.read_bytes()[:1000], "no pickled batch"),
        (b"<html>", "no pickled batch"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=said) as caught:
            dataset.load(torchvisions_cifar)
        assert f"{path} is damaged" in str(caught.value) and "bwbench data fetch cifar10" in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_missing_files_are_said_in_one_message_with_every_place(tmp_path: Path) -> None:
    dataset = FashionMnist(FashionMnist.Config())
    problem = dataset.unfit(tmp_path)
    assert problem is not None and len(problem.problems) == 1
    text = str(problem)
    assert str(tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz") in text and "and 3 more" in text
    assert "bwbench data fetch fashion-mnist" in text
    assert "fashion-mnist or FashionMNIST/raw lies" in text
    assert str(dataset.missing(tmp_path)) == text


def test_each_damaged_file_is_said_once(tmp_path: Path) -> None:
    official_format.write_idx_files(tmp_path / "fashion-mnist")  # small ones, which have none of the checksums
    problem = FashionMnist(FashionMnist.Config()).unfit(tmp_path)
    assert problem is not None
    texts = [str(one) for one in problem.problems]
    assert len(texts) == len(set(texts)) == 4
    assert all("is damaged: " in text and "whose md5 is not the official" in text for text in texts)


def test_what_is_packed_anew_is_whole_and_what_has_no_checksum_is_taken(tmp_path: Path) -> None:
    content = b"content" * 1000
    packed = gzip.compress(content)
    digest = FileDigest("a.gz", md5=hashlib.md5(packed).hexdigest(), unpacked_md5=hashlib.md5(content).hexdigest())
    path = tmp_path / "a.gz"
    for good in (packed, gzip.compress(content, 1, mtime=7)):
        path.write_bytes(good)
        assert is_whole(path, digest)
    for bad in (packed[:-1], gzip.compress(b"other"), content, b""):
        path.write_bytes(bad)
        assert not is_whole(path, digest)
    assert is_whole(path, FileDigest("a.gz"))


def test_what_torchvision_has_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    content = b"content" * 1000
    sums = hashlib.md5(content).hexdigest()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a").write_bytes(content)
    with serve() as server:
        server.files["/a"] = content
        file = RemoteFile("ours/a", md5=sums, also=(FileDigest("theirs/a", md5=sums),), url=server.url("/a"))
        assert fetch((file,), tmp_path) == []
        (tmp_path / "theirs" / "a").write_bytes(content[1:])
        assert fetch((file,), tmp_path) == [tmp_path / "ours" / "a"]


@pytest.mark.data
def test_the_official_files_unpacked_have_the_checksums_that_are_written_down(tmp_path: Path) -> None:
    real = Path(os.environ.get("BWBENCH_DATA") or "nowhere")
    dataset = FashionMnist(FashionMnist.Config())
    if dataset.missing(real) is not None:
        pytest.skip("BWBENCH_DATA names no folder with fashion-mnist")
    unpack(real / "fashion-mnist", tmp_path / "FashionMNIST" / "raw")
    assert dataset.unfit(real) is None
    assert dataset.unfit(tmp_path) is None
