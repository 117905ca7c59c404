"""What a worker does to torch before it begins: no compiler, with which it would start late; no subnormal numbers."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import torch
from bwbench.training.loop.worker import leave_compiler_out

def train(make):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    return [parameter.detach().clone() for parameter in model.parameters()]

makes = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adam(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1),
]
leave_compiler_out()
lean = [train(make) for make in makes]
assert "torch._dynamo" not in sys.modules, "the compiler came in"
print(repr([[value.tolist() for value in run] for run in lean]))
"""


def test_optimizers_do_the_same_without_the_compiler() -> None:
    usual = SCRIPT.replace("\nleave_compiler_out()\n", "\n").replace(
        'assert "torch._dynamo" not in', "assert 'x' not in"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True).stdout
        for script in (SCRIPT, usual)
    ]
    assert outputs[0] == outputs[1] and "[[" in outputs[0]


SUBNORMAL = """
import threading
import torch
from bwbench.training.loop.worker import flush_subnormal_numbers

known = torch.set_flush_denormal(True)  # whether this processor has it
torch.set_flush_denormal(False)
small = torch.full((4, 4), 1e-39)
assert (small * 1).max() > 0
flush_subnormal_numbers()
found = [(small * 1).max().item()]
thread = threading.Thread(target=lambda: found.append((small @ torch.eye(4)).max().item()))
thread.start()
thread.join()
print(known, [value == 0 for value in found])
"""


def test_numbers_smaller_than_any_normal_one_are_nought_in_a_worker_and_in_its_threads() -> None:
    done = subprocess.run([sys.executable, "-c", SUBNORMAL], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout in ("True [True, True]\n", "False [False, False]\n")
