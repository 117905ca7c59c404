"""Run by test_lightning.py: trains on two processes, and prints one line of JSON a process.

python lightning_script.py METHOD_JSON FOLDER CASE
"""

from __future__ import annotations

import atexit
import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bwbench.lightning import BwbenchStrategy
from bwbench.training.loop.replica import digest

METHOD, FOLDER, CASE = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
NUM_SAMPLES, BATCH_SIZE, EPOCH_STEPS = 96, 8, 6


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.BatchNorm1d(40), nn.Linear(40, 4))
        self.seen: list[int] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, numbers = batch
        self.seen += numbers.tolist()
        return (self.net(inputs) - inputs[:, :4].sin()).pow(2).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("loss", (self.net(batch[0]) - batch[0][:, :4].sin()).pow(2).mean(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


def loader(shuffle: bool) -> DataLoader:
    inputs = torch.randn(NUM_SAMPLES, 12, generator=torch.Generator().manual_seed(3))
    return DataLoader(TensorDataset(inputs, torch.arange(NUM_SAMPLES)), BATCH_SIZE, shuffle=shuffle)


def trainer(max_epochs: int, **options: Any) -> pl.Trainer:
    return pl.Trainer(
        strategy=BwbenchStrategy(METHOD, timeout_s=60),
        accelerator="cpu",
        devices=2,
        max_epochs=max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def fit(max_epochs: int, checkpoint: Path | None = None, save: Path | None = None, **options: Any) -> Net:
    """Train to the end of epoch ``max_epochs``; saves inside of ``fit``, as ModelCheckpoint does."""
    net = Net()

    class Save(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
            if save is not None and trainer.current_epoch == 1:
                trainer.save_checkpoint(save)

    run = trainer(max_epochs, callbacks=[Save()], **options)
    run.fit(net, loader(shuffle=True), loader(shuffle=False), ckpt_path=checkpoint)
    report["loss"] = float(run.callback_metrics["loss"])
    report["steps"] = run.global_step
    report["rank"] = run.global_rank
    return net


def parameters(net: Net) -> str:
    return digest(enumerate(net.net.parameters())).hex()


report: dict[str, Any] = {}


@atexit.register  # before any other, so that it runs behind them
def say() -> None:
    """Report, and whether a process group was left to the interpreter (which may end with SIGABRT then)."""
    if report:
        print("\n" + json.dumps(report | {"left": dist.is_initialized()}), flush=True)


pl.seed_everything(1)
if CASE == "resume":
    whole = fit(4, save=FOLDER / "inside.ckpt")
    report["whole"] = parameters(whole)
    report["seen"] = sorted(whole.seen)
    pl.seed_everything(1)
    report["resumed"] = parameters(fit(4, checkpoint=FOLDER / "inside.ckpt"))
elif CASE == "twice":
    net = Net()
    run = trainer(2)
    run.fit(net, loader(shuffle=True), loader(shuffle=False))
    run.fit_loop.max_epochs = 4
    run.fit(net, loader(shuffle=True))
    run.save_checkpoint(FOLDER / "after.ckpt")
    report |= {"rank": run.global_rank, "steps": run.global_step, "whole": parameters(net)}
    again = Net()
    run = trainer(4)
    run.fit(again, loader(shuffle=True), ckpt_path=FOLDER / "after.ckpt")  # nothing left to do but to load
    report["resumed"] = parameters(again)
    run.validate(again, loader(shuffle=False), verbose=False)
    report["loss"] = float(run.callback_metrics["loss"])
elif CASE == "accumulate":
    report["whole"] = parameters(fit(1, accumulate_grad_batches=4, num_sanity_val_steps=0))
