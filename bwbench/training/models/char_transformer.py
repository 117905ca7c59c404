"""A small decoder-only transformer for characters."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.base.data_spec import LANGUAGE_MODELLING, DataSpec
from bwbench.methods.deferred import nn, torch
from bwbench.training.models.model import AbstractModel


class CharTransformerConfig(ComponentConfig):
    """Options of ``char-transformer``.

    Attributes:
        embedding: width of the residual stream; a multiple of ``heads``.
        heads: attention heads.
        layers: blocks of attention and feed-forward.
    """

    embedding: int = Field(128, ge=4, le=4096)
    heads: int = Field(4, ge=1, le=64)
    layers: int = Field(4, ge=1, le=48)

    @model_validator(mode="after")
    def _heads_divide(self) -> CharTransformerConfig:
        if self.embedding % self.heads:
            text = f"embedding {self.embedding} is not a multiple of heads {self.heads}"
            raise PydanticCustomError("heads", "{message}", {"message": text})
        return self


class CharTransformer(AbstractModel):
    """Causal attention with LayerNorm before each sublayer, GELU, learnt positions; no dropout, no weight tying.

    818,241 parameters on 64 characters of 65 different ones by default. Initialised as GPT-2 (Radford et al. 2019):
    normal with 0.02, the sublayers' last projections scaled down by the square root of their number.
    """

    Config: ClassVar[type[ComponentConfig]] = CharTransformerConfig
    name: ClassVar[str] = "char-transformer"
    tasks: ClassVar[tuple[str, ...]] = (LANGUAGE_MODELLING,)
    reference_spec: ClassVar[DataSpec] = DataSpec((64,), 65, LANGUAGE_MODELLING)
    parameter_range: ClassVar[tuple[int, int]] = (500_000, 1_000_000)
    options: CharTransformerConfig

    def _build(self, spec: DataSpec) -> nn.Module:
        return _decoder(spec.input_shape[0], spec.num_classes, self.options)


def _decoder(context: int, vocabulary: int, options: CharTransformerConfig) -> nn.Module:
    """Character numbers ``[batch, up to context]`` to logits ``[batch, same, vocabulary]``."""
    width = options.embedding

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(_block(width, options.heads) for _ in range(options.layers)))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    scale = (2 * options.layers) ** -0.5 if name.endswith("out.weight") else 1.0
                    nn.init.normal_(parameter, std=0.02 * scale)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            numbers = inputs.long()
            places = torch.arange(numbers.shape[1], device=numbers.device)
            logits: torch.Tensor = self.head(self.norm(self.blocks(self.characters(numbers) + self.positions(places))))
            return logits

    return Decoder()


def _block(width: int, heads: int) -> nn.Module:
    """Attention to earlier positions, then feed-forward, each added to the stream ``[batch, context, width]``."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm = nn.LayerNorm(width)
            self.attention_in = nn.Linear(width, 3 * width)
            self.attention_out = nn.Linear(width, width)
            self.feed_norm = nn.LayerNorm(width)
            self.feed_in = nn.Linear(width, 4 * width)
            self.feed_out = nn.Linear(4 * width, width)

        def forward(self, stream: torch.Tensor) -> torch.Tensor:
            batch, context, _ = stream.shape
            parts = self.attention_in(self.attention_norm(stream)).view(batch, context, 3, heads, width // heads)
            query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [batch, heads, context, width / heads]
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            stream = stream + self.attention_out(mixed.transpose(1, 2).reshape(batch, context, width))
            result: torch.Tensor = stream + self.feed_out(nn.functional.gelu(self.feed_in(self.feed_norm(stream))))
            return result

    return Block()
