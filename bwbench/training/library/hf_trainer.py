"""Hugging Face Transformers: ``BwbenchTrainer(..., algorithm="bytegrad")`` in place of ``Trainer(...)``."""

from __future__ import annotations

from typing import Any

from bwbench.training.library.distribution import TIMEOUT_S
from bwbench.training.library.hf_accelerator import BwbenchAccelerator
from bwbench.training.library.link_pacing import UNPACED
from bwbench.training.library.rank_part import memory_of_their_own

try:
    from transformers import Trainer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("bwbench.transformers needs Transformers: pip install 'bwbench[hf]'") from error


class BwbenchTrainer(Trainer):  # type: ignore[misc]  # without types where it is not installed
    """Transformers' training loop, with replicas kept in step by a method of bwbench.

    Everything else is as in ``Trainer``: arguments, callbacks, accumulation, evaluation, checkpoints. A checkpoint has
    one more file a rank, ``bwbench-rank<r>.pt``, for what replicas do not share, so that
    ``train(resume_from_checkpoint=...)`` goes on as if it had not been interrupted.

    Args:
        *arguments: of ``Trainer``.
        **options: of ``Trainer``.
        algorithm: as for ``bwbench.distribute``.
        collective: likewise.
        compression: likewise.
        timeout_s: likewise.
        buffers: likewise.
        link: likewise.
    """

    accelerator: BwbenchAccelerator

    def __init__(
        self,
        *arguments: Any,
        algorithm: Any = "bytegrad",
        collective: Any = None,
        compression: Any = None,
        timeout_s: float = TIMEOUT_S,
        buffers: str = "local",
        link: str = UNPACED,
        **options: Any,
    ) -> None:
        self._asked = {"algorithm": algorithm, "collective": collective, "compression": compression}
        self._asked |= {"timeout_s": timeout_s, "buffers": buffers, "link": link}
        super().__init__(*arguments, **options)

    def create_accelerator_and_postprocess(self) -> None:
        """As Transformers does it; the accelerator is ours from then on. Raises ConfigError where it shards."""
        super().create_accelerator_and_postprocess()
        self.accelerator = BwbenchAccelerator.taking_over(self.accelerator, self._asked)

    def train(self, *arguments: Any, **options: Any) -> Any:
        """As Transformers does it; communication ends with it."""
        try:
            result = super().train(*arguments, **options)
        except BaseException:  # peers may be gone: nobody waits for them
            self.accelerator.close(together=False)
            raise
        self.accelerator.close()
        return result

    def evaluation_loop(self, *arguments: Any, **options: Any) -> Any:
        """Nothing moves while the model is evaluated."""
        self.accelerator.drain()
        return super().evaluation_loop(*arguments, **options)

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        self.accelerator.drain()  # before the model is written
        super()._save_checkpoint(*arguments, **options)

    def _save(self, *arguments: Any, **options: Any) -> None:
        with memory_of_their_own(self.model):
            super()._save(*arguments, **options)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        self.accelerator.save_part(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.accelerator.load_part(checkpoint)
