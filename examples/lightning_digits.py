"""PyTorch Lightning: one word of the Trainer changes. Lightning starts the processes and deals out the data.

python lightning_digits.py [ALGORITHM]
"""

import sys

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bwbench.lightning import BwbenchStrategy

ALGORITHM = sys.argv[1] if len(sys.argv) > 1 else "bytegrad"


class Digits(pl.LightningModule):
    """A small network on 8x8 digits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, index):
        """The loss of a batch."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        """Accuracy, the mean over all processes."""
        accuracy = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", accuracy, sync_dist=True)

    def configure_optimizers(self):
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def loader(begin: int, end: int, *, shuffle: bool) -> DataLoader:
    """Digits from ``begin`` to ``end``."""
    digits = load_digits()
    inputs = torch.tensor(digits.data[begin:end], dtype=torch.float32) / 16
    return DataLoader(TensorDataset(inputs, torch.tensor(digits.target[begin:end])), 32, shuffle=shuffle)


if __name__ == "__main__":
    torch.set_num_threads(1)
    pl.seed_everything(0)
    trainer = pl.Trainer(
        strategy=BwbenchStrategy(ALGORITHM),  # the line that changes
        accelerator="cpu",
        devices=2,
        max_epochs=8,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), loader(0, 1437, shuffle=True), loader(1437, 1797, shuffle=False))
    print(f"rank {trainer.global_rank}: accuracy {trainer.callback_metrics['accuracy']:.3f}")
