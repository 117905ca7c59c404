"""``bwbench shapes``: the layers of a model of one's own into a file, for cells of which only the times are asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bwbench.base.errors import EXIT_OK, ConfigError, LaunchError
from bwbench.base.start_module import module_command
from bwbench.cli.output import stderr

_TIME_LIMIT_S = 300.0
_MOST_DIGITS = 12  # of a size


def shapes(
    model: Annotated[str, typer.Argument(metavar="FILE.py:MODEL", help="What makes the model, without arguments.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; MODEL.json by default.", show_default=False)
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            "--input", metavar="SHAPE", help="Of one sample, like 3,224,224: what each layer computes is counted."
        ),
    ] = "",
    tokens: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="The same for a model of text: that many tokens.")
    ] = 0,
) -> int:
    """Write the shapes of a model of your own, for 'model: {shapes: FILE}'.

    It is made on torch's meta device, where no tensor has memory, so that a model of any size can be written down.
    """
    import json  # none of these is needed for help
    import subprocess

    from bwbench.base.model_shapes import REFUSAL, read_shapes
    from bwbench.base.ownership import owned
    from bwbench.records import write_json_atomic

    if sample and tokens:
        raise ConfigError("shapes: --input and --tokens both say what the model takes; keep one")
    if not all(_is_size(size.strip()) for size in sample.split(",") if sample):
        raise ConfigError(f"shapes: --input {sample!r} is no shape; write it like 3,224,224")
    name = model.rpartition(":")[2]
    asked = f"tokens:{tokens}" if tokens else sample
    command = [*module_command("bwbench.training.models.write_shapes"), model, *([asked] if asked else [])]
    try:
        made = subprocess.run(command, env=owned(), capture_output=True, text=True, timeout=_TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"shapes: {model} took longer than {_TIME_LIMIT_S:g} s to be made; is it on meta?") from None
    if made.returncode != 0:
        _, began, said = made.stderr.rpartition(REFUSAL)
        last = (made.stderr.strip().splitlines() or [f"exit status {made.returncode}"])[-1]
        raise ConfigError(f"shapes: {said.strip() if began else last}")
    sys.stderr.write(made.stderr)  # what the file of the model prints
    path = out or Path(f"{name}.json")
    try:
        write_json_atomic(path, json.loads(made.stdout))
    except OSError as error:
        raise ConfigError(f"shapes: {path} cannot be written: {error.strerror}") from None
    found, _ = read_shapes(path)
    shares = "what its layers compute" if asked else "their parameters, for want of --input or --tokens"
    stderr().print(
        f"{path}: {found.num_parameters:,} parameters in {len(found.layers)} layers, "
        f"whose shares of the backward pass follow {shares}"
    )
    return EXIT_OK


def _is_size(text: str) -> bool:
    """Whether it is a whole number above 0, of digits that ``int`` takes."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) > 0
