"""Hugging Face Transformers: the Trainer's name changes. A tiny BERT, made here, on random tokens; nothing is fetched.

torchrun --nproc-per-node 2 transformers_random.py [ALGORITHM]
"""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments, set_seed

from bwbench.transformers import BwbenchTrainer

ALGORITHM = sys.argv[1] if len(sys.argv) > 1 else "bytegrad"
CLASSES, LENGTH = 4, 8


class Tokens(Dataset):
    """Random tokens; the label is the class of the first one."""

    def __init__(self, num_samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, 5 + 8 * CLASSES, (num_samples, LENGTH), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict:
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": tokens[0] % CLASSES}


def accuracy(predicted) -> dict:
    """What ``evaluate`` adds to the loss."""
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


torch.set_num_threads(1)
set_seed(0)
config = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=LENGTH,
    num_labels=CLASSES,
)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        num_train_epochs=6,
        per_device_train_batch_size=16,
        learning_rate=5e-3,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = BwbenchTrainer(  # the name that changes
        BertForSequenceClassification(config),
        arguments,
        train_dataset=Tokens(1024, seed=1),
        eval_dataset=Tokens(256, seed=2),
        compute_metrics=accuracy,
        algorithm=ALGORITHM,  # and the word that comes with it
    )
    trainer.train()
    print(f"rank {arguments.process_index}: accuracy {trainer.evaluate()['eval_accuracy']:.3f}", flush=True)
