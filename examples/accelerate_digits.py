"""Hugging Face Accelerate: one name changes. Accelerate places the model, deals out the data and accumulates.

torchrun --nproc-per-node 2 accelerate_digits.py [ALGORITHM]
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bwbench.accelerate import BwbenchAccelerator

ALGORITHM = sys.argv[1] if len(sys.argv) > 1 else "bytegrad"
NUM_TRAIN = 1437

torch.set_num_threads(1)
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:NUM_TRAIN], labels[:NUM_TRAIN]), 16, shuffle=True)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

accelerator = BwbenchAccelerator(ALGORITHM, cpu=True, gradient_accumulation_steps=2)  # the line that changes
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

for _ in range(8):
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()

accelerator.drain()  # nothing moves while the model is evaluated
with torch.no_grad():
    accuracy = (model(images[NUM_TRAIN:]).argmax(1) == labels[NUM_TRAIN:]).float().mean().item()
print(f"rank {accelerator.process_index}: accuracy {accuracy:.3f}", flush=True)
accelerator.end_training()
