"""What the readers of official files make of their content, and what they say about files that cannot be right."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from bwbench.base.errors import ConfigError
from bwbench.training.datasets.pictures import Cifar10, Mnist
from bwbench.training.datasets.tinyshakespeare import VOCABULARY, TinyShakespeare
from tests.unit.training.datasets import official_format
from tests.unit.training.datasets.official_format import idx

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


@pytest.fixture
def mnist(tmp_path):
    official_format.write_idx_files(tmp_path / "mnist")
    return Mnist(Mnist.Config())


def test_idx_pixels_and_labels_keep_their_place(mnist, tmp_path):
    pictures = np.zeros((100, 28, 28), np.uint8)
    pictures[:, 3, 5] = np.arange(100)
    (tmp_path / "mnist" / IMAGES).write_bytes(gzip.compress(idx(pictures)))
    splits = mnist.load(tmp_path)
    assert len(splits.train) == 90
    assert len(splits.validation) == 10
    for split in (splits.train, splits.validation):
        grey = split.inputs[:, 0] * mnist.std * 255 + mnist.mean * 255
        number = grey[:, 3, 5].round().astype(int)  # which picture it was; its label is the last digit
        assert np.array_equal(number % 10, split.targets)
        assert np.allclose(np.delete(grey.reshape(len(split), -1), 3 * 28 + 5, axis=1), 0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (IMAGES, b"<html>not found</html>", "Not a gzipped file"),
        (IMAGES, b"", "less than its header"),
        (IMAGES, gzip.compress(b"\0\0\x08"), "less than its header"),
        (IMAGES, gzip.compress(idx(np.zeros((5, 28, 28))))[:-30] + b"x" * 30, ""),
        (IMAGES, gzip.compress(idx(np.zeros(5))), "less than its header"),
        (IMAGES, gzip.compress(idx(np.zeros((2, 3)))), "magic number 2050, 2051 expected"),
        (IMAGES, gzip.compress(idx(np.zeros((5, 28, 28)))[:-1]), "3935 bytes unpacked, 3936 expected"),
        (IMAGES, gzip.compress(idx(np.zeros((5, 8, 8)))), "8x8, 28x28 expected"),
        (LABELS, gzip.compress(idx(np.zeros(7))), "7 labels for the 100 pictures"),
        (LABELS, gzip.compress(idx(np.full(100, 10))), "label 10, at most 9 expected"),
    ],
)
def test_idx_files_that_cannot_be_right(mnist, tmp_path, name, content, complaint):
    (tmp_path / "mnist" / name).write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        mnist.load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "mnist" / name) in message
    assert complaint in message
    assert "bwbench data fetch mnist" in message


def test_a_folder_in_place_of_a_file(mnist, tmp_path):
    (tmp_path / "mnist" / IMAGES).unlink()
    (tmp_path / "mnist" / IMAGES).mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        mnist.load(tmp_path)


def test_cifar_planes_are_red_green_blue(tmp_path, monkeypatch):
    official_format.write_cifar10(tmp_path, monkeypatch, num_records=40)
    records = np.zeros((40, 3073), np.uint8)
    records[:, 0] = 7
    records[:, 1:1025], records[:, 1025:2049], records[:, 2049:] = 10, 20, 30
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(records.tobytes())
    test = Cifar10(Cifar10.Config()).load(tmp_path).test
    expected = [(10 / 255 - 0.4914) / 0.2470, (20 / 255 - 0.4822) / 0.2435, (30 / 255 - 0.4465) / 0.2616]
    assert np.allclose(test.inputs, np.array(expected).reshape(1, 3, 1, 1), atol=1e-4)
    assert set(test.targets) == {7}


def test_cifar_label_out_of_range(tmp_path, monkeypatch):
    official_format.write_cifar10(tmp_path, monkeypatch, num_records=40)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    with pytest.raises(ConfigError, match=r"data_batch_3\.bin is damaged: label 10"):
        Cifar10(Cifar10.Config()).load(tmp_path)


@pytest.mark.parametrize("context", [1, 64, 1000])
def test_text_targets_are_the_next_characters_and_splits_do_not_overlap(tmp_path, context):
    official_format.write_tinyshakespeare(tmp_path)
    text = (tmp_path / "tinyshakespeare" / "input.txt").read_text()
    splits = TinyShakespeare(TinyShakespeare.Config(context=context)).load(tmp_path)
    numbers = np.array([VOCABULARY.index(character) for character in text[:5000]])
    flat = splits.train.inputs.reshape(-1)
    assert np.array_equal(flat[:4000], numbers[:4000])
    assert np.array_equal(splits.train.targets.reshape(-1)[:4000], numbers[1:4001])
    before_test = len(text) - int(len(text) * 0.1)
    used = splits.train.inputs.size + splits.validation.inputs.size
    assert before_test - context <= used < before_test
    assert splits.validation.inputs[0, 0] == VOCABULARY.index(text[splits.train.inputs.size])
    assert splits.test.inputs[0, 0] == VOCABULARY.index(text[before_test])
    assert len(splits.validation) == min(5000, int(0.1 * (len(splits.train) + len(splits.validation))))


def test_text_with_a_foreign_character(tmp_path):
    official_format.write_tinyshakespeare(tmp_path)
    path = tmp_path / "tinyshakespeare" / "input.txt"
    content = bytearray(path.read_bytes())
    content[12] = ord("#")
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="byte 35 at offset 12 is none of its 65 characters"):
        TinyShakespeare(TinyShakespeare.Config()).load(tmp_path)
