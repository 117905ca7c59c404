"""Run by test_hf.py on two processes: trains, and prints one line of JSON a process.

torchrun hf_script.py METHOD_JSON FOLDER CASE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bwbench.accelerate import BwbenchAccelerator
from bwbench.training.loop.replica import digest

METHOD, FOLDER, CASE = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
NUM_SAMPLES, BATCH_SIZE = 96, 8


class Net(nn.Module):
    """What Transformers asks of a model: a loss and outputs from named inputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.BatchNorm1d(40), nn.Linear(40, 4))
        self.seen: list[int] = []

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen += labels.tolist()
        outputs = self.net(inputs)
        return {"loss": (outputs - inputs[:, :4].sin()).pow(2).mean(), "logits": outputs}


class Samples(Dataset[Any]):
    def __init__(self) -> None:
        self.inputs = torch.randn(NUM_SAMPLES, 12, generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.inputs[index], "labels": index}


def of(model: nn.Module) -> str:
    return digest(enumerate(model.parameters())).hex()


def trained(
    folder: Path, epochs: int, resume: str | None = None, accumulate: int = 1, *, again: bool = False
) -> dict[str, Any]:
    """By Transformers' Trainer; saves after every epoch."""
    from transformers import TrainingArguments

    from bwbench.transformers import BwbenchTrainer

    set_seed(1)
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH_SIZE,
        per_device_eval_batch_size=BATCH_SIZE,
        gradient_accumulation_steps=accumulate,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        save_strategy="epoch",
        eval_strategy="epoch",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
    )
    net = Net()
    trainer = BwbenchTrainer(net, arguments, train_dataset=Samples(), eval_dataset=Samples(), algorithm=METHOD)
    result = trainer.train(resume_from_checkpoint=resume)
    if again:
        trainer.args.num_train_epochs *= 2
        result = trainer.train()
    assert trainer.accelerator.handle is None
    return {
        "rank": arguments.process_index,
        "steps": result.global_step,
        "replica": of(net),
        "loss": trainer.evaluate()["eval_loss"],
        "seen": sorted(net.seen),
    }


def looped(accumulate: int = 1) -> dict[str, Any]:
    """By a loop around Accelerate; saved in the middle, and taken up again from there."""
    accelerator = BwbenchAccelerator(METHOD, cpu=True, gradient_accumulation_steps=accumulate)
    set_seed(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    samples = Samples()
    loader = DataLoader(TensorDataset(samples.inputs, torch.arange(NUM_SAMPLES)), BATCH_SIZE)
    optimizer, model, loader = accelerator.prepare(optimizer, net, loader)  # the optimizer first: no matter
    assert model is net and accelerator.handle is not None
    steps = 0

    def epoch() -> None:
        nonlocal steps
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(inputs, labels)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    steps += 1
                optimizer.step()
                optimizer.zero_grad()

    epoch()
    accelerator.save_state(str(FOLDER / "state"))
    epoch()
    whole = of(net)
    accelerator.load_state(str(FOLDER / "state"))
    epoch()
    report = {"rank": accelerator.process_index, "steps": steps, "whole": whole, "resumed": of(net)}
    accelerator.end_training()
    return report | {"seen": sorted(set(net.seen))}


if CASE == "loop":
    report = looped()
elif CASE == "loop accumulating":
    report = looped(accumulate=4)
elif CASE == "resume":
    report = trained(FOLDER / "whole", 4)
    again = trained(FOLDER / "whole", 4, resume=str(FOLDER / "whole" / "checkpoint-12"))
    report["resumed"] = again["replica"]
elif CASE == "accumulate":
    report = trained(FOLDER / "whole", 1, accumulate=4)
elif CASE == "again":  # the Trainer keeps its optimizer, and with it what Accelerate has made of it
    report = trained(FOLDER / "whole", 1, again=True)
sys.stdout.write(f"\n{json.dumps(report)}\n")  # one write: what print adds at its end may come behind what others say
sys.stdout.flush()
