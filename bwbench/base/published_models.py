"""Layers of published models: shapes of their parameters, and the multiply-adds of each layer for one sample.

A backward pass computes twice as many as a forward pass, layer by layer, so that shares of both are the same. What the
layers between matrices compute (norms, activations) is left out. Numbers of parameters are those that are published,
to the last one; ``tests/unit/base/test_model_shapes.py`` has them with their sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from bwbench.base.model_shapes import Layer, ModelShapes


def _vgg16() -> Iterator[Layer]:
    """Simonyan and Zisserman 2015, configuration D, on 3x224x224."""
    side, num_inputs = 224, 3
    for stage, (depth, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))):
        for number in range(depth):
            work = 9 * num_inputs * width * side**2
            yield Layer(f"conv{stage + 1}_{number + 1}", ((width, num_inputs, 3, 3), (width,)), work)
            num_inputs = width
        side //= 2
    for number, (rows, cols) in enumerate(((4096, 512 * 7 * 7), (4096, 4096), (1000, 4096))):
        yield Layer(f"fc{number + 6}", ((rows, cols), (rows,)), rows * cols)


def _resnet50() -> Iterator[Layer]:
    """He et al. 2015, on 3x224x224, the stride in the 3x3 convolution as in torchvision; each with its BatchNorm."""

    def conv(name: str, num_outputs: int, num_inputs: int, kernel: int, side: int) -> Layer:
        work = kernel**2 * num_inputs * num_outputs * side**2
        return Layer(name, ((num_outputs, num_inputs, kernel, kernel), (num_outputs,), (num_outputs,)), work)

    yield conv("conv1", 64, 3, 7, 112)
    num_inputs, side = 64, 56
    for stage, (depth, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(depth):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage > 0 and block == 0 else 1
            yield conv(f"{name}.conv1", width, num_inputs, 1, side)
            side //= stride
            yield conv(f"{name}.conv2", width, width, 3, side)
            yield conv(f"{name}.conv3", 4 * width, width, 1, side)
            if block == 0:
                yield conv(f"{name}.downsample", 4 * width, num_inputs, 1, side)
            num_inputs = 4 * width
    yield Layer("fc", ((1000, 2048), (1000,)), 1000 * 2048)


def _bert(width: int, depth: int) -> Iterator[Layer]:
    """Devlin et al. 2018, uncased, with both heads of its pre-training, on 128 tokens (its first phase)."""
    tokens, vocabulary = 128, 30_522
    norm = ((width,), (width,))
    embeddings = ((vocabulary, width), (512, width), (2, width), *norm)
    yield Layer("embeddings", embeddings, 0)  # the decoder below shares the first of them
    for number in range(depth):
        yield from _attention(f"layer.{number}", width, tokens, norm)
        yield from _feed_forward(f"layer.{number}", width, 4 * width, tokens, norm)
    yield Layer("pooler", ((width, width), (width,)), width**2)
    yield Layer("predictions.transform", ((width, width), (width,), *norm), tokens * width**2)
    yield Layer("predictions.decoder", ((vocabulary,),), tokens * width * vocabulary)
    yield Layer("seq_relationship", ((2, width), (2,)), 2 * width)


def _vit_b16() -> Iterator[Layer]:
    """Dosovitskiy et al. 2021, base with patches of 16x16, on 3x224x224."""
    width, tokens = 768, 14 * 14 + 1
    norm = ((width,), (width,))
    patches = ((1, 1, width), (width, 3, 16, 16), (width,), (1, tokens, width))
    yield Layer("patches", patches, 3 * 16 * 16 * width * (tokens - 1))
    for number in range(12):
        yield from _attention(f"layer.{number}", width, tokens, norm)
        yield from _feed_forward(f"layer.{number}", width, 4 * width, tokens, norm)
    yield Layer("head", (*norm, (1000, width), (1000,)), 1000 * width)


def _gpt2(width: int, depth: int) -> Iterator[Layer]:
    """Radford et al. 2019, on 1024 tokens; the output layer is the embedding of the tokens."""
    tokens, vocabulary = 1024, 50_257
    norm = ((width,), (width,))
    yield Layer("embeddings", ((vocabulary, width), (tokens, width)), 0)
    for number in range(depth):
        yield from _attention(f"h.{number}", width, tokens, norm)
        yield from _feed_forward(f"h.{number}", width, 4 * width, tokens, norm)
    yield Layer("head", norm, tokens * width * vocabulary)


def _llama_1b() -> Iterator[Layer]:
    """Llama 3.2 1B (Meta 2024), on 2048 tokens: keys and values of 8 of 32 heads, the output layer is the embedding."""
    width, inner, tokens, vocabulary, narrow = 2048, 8192, 2048, 128_256, 512
    yield Layer("embed_tokens", ((vocabulary, width),), 0)
    for number in range(16):
        shapes = ((width, width), (narrow, width), (narrow, width), (width, width), (width,))
        work = tokens * 2 * (width**2 + narrow * width) + 2 * tokens**2 * width
        yield Layer(f"layers.{number}.attention", shapes, work)
        feed = ((inner, width), (inner, width), (width, inner), (width,))
        yield Layer(f"layers.{number}.mlp", feed, 3 * tokens * width * inner)
    yield Layer("norm", ((width,),), tokens * width * vocabulary)


_Shapes = tuple[tuple[int, ...], ...]


def _attention(name: str, width: int, tokens: int, norm: _Shapes) -> Iterator[Layer]:
    """Queries, keys and values, the products between tokens, and the projection back."""
    between = 2 * tokens**2 * width
    yield Layer(f"{name}.qkv", ((3 * width, width), (3 * width,)), 3 * tokens * width**2 + between)
    yield Layer(f"{name}.projection", ((width, width), (width,), *norm), tokens * width**2)


def _feed_forward(name: str, width: int, inner: int, tokens: int, norm: _Shapes) -> Iterator[Layer]:
    """Two matrices with the activation between them."""
    yield Layer(f"{name}.feed_in", ((inner, width), (inner,)), tokens * width * inner)
    yield Layer(f"{name}.feed_out", ((width, inner), (width,), *norm), tokens * width * inner)


PUBLISHED: dict[str, Callable[[], Iterator[Layer]]] = {
    "vgg16": _vgg16,
    "resnet50": _resnet50,
    "bert-base": lambda: _bert(768, 12),
    "bert-large": lambda: _bert(1024, 24),
    "vit-b16": _vit_b16,
    "gpt2": lambda: _gpt2(768, 12),
    "gpt2-medium": lambda: _gpt2(1024, 24),
    "llama-1b": _llama_1b,
}


@lru_cache
def published_model(name: str) -> ModelShapes:
    """The model of this name, one of ``PUBLISHED``."""
    return ModelShapes(name, tuple(PUBLISHED[name]()))
