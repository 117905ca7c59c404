"""What is trained to which target in the benchmark of time to accuracy."""

from __future__ import annotations

from dataclasses import dataclass

from training_parts.arms import NODES, optimizer_of

EXPERIMENT = """
name: {name}
nodes: {nodes}
link: {link}
model: {model}
dataset: {dataset}
batch_size: 32
algorithm: {arm}
optimizer: {optimizer}
compute: {compute}
evaluate: {{every: 2000 samples}}
target: {{accuracy: {target}}}
stop: target
limit: {{samples: {samples}, time: {time}}}
seed: {seed}
"""


@dataclass(frozen=True)
class Workload:
    """A model, a data set and a target; ``samples`` and ``time`` limit a run."""

    name: str
    model: str
    dataset: str
    target: float
    samples: int
    compute: str = "{threads: 1}"
    time: str = "10 min"

    def experiment(
        self, arm: str, lr: float, seed: int, link: str, samples: int | None = None, padded: bool = True
    ) -> str:
        """YAML of one training.

        Args:
            link: as under ``link:``.
            samples: the limit; None takes the workload's.
            padded: steps take the declared time; without, the same steps are taken as fast as the machine can.
        """
        alone = arm == "single"
        return EXPERIMENT.format(
            name="tta",
            nodes=1 if alone else NODES,
            link="unshaped" if alone else link,
            model=self.model,
            dataset=self.dataset,
            arm=arm,
            optimizer=optimizer_of(arm, lr),
            compute=self.compute if padded else "{threads: 1}",
            target=self.target,
            samples=samples or self.samples,
            time=self.time,
            seed=seed,
        )


WORKLOADS = {
    "small": Workload("small", "cnn-large", "fashion-mnist", 0.88, 160_000),
    "shared": Workload("shared", "resnet8", "cifar10", 0.5, 160_000, "{threads: 1, step_time: 250 ms}", "20 min"),
}
QUICK = Workload("quick", "logistic", "digits", 0.85, 8_000)
