"""An ordinary PyTorch script on several processes; marked are the three lines that make it one.

torchrun --nproc-per-node 4 torchrun_digits.py [ALGORITHM]
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from bwbench import distribute  # 1

ALGORITHM = sys.argv[1] if len(sys.argv) > 1 else "ring-fp16"
EPOCHS, BATCH_SIZE, NUM_TRAIN = 8, 16, 1437

torch.set_num_threads(1)
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_set = TensorDataset(images[:NUM_TRAIN], labels[:NUM_TRAIN])

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)

handle = distribute(model, optimizer, ALGORITHM)  # 2
torch.manual_seed(1 + handle.rank)  # dropout differs from rank to rank, as it should

sampler = DistributedSampler(train_set, handle.world_size, handle.rank, drop_last=True)  # 3, and in the next line
loader = DataLoader(train_set, BATCH_SIZE, sampler=sampler, drop_last=True)

for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    model.train()
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    scheduler.step()

handle.drain()  # nothing moves while the model is evaluated
model.eval()
with torch.no_grad():
    accuracy = (model(images[NUM_TRAIN:]).argmax(1) == labels[NUM_TRAIN:]).float().mean().item()
print(f"rank {handle.rank}: accuracy {accuracy:.3f}, {handle.payload_bytes} bytes of payload sent", flush=True)
