"""Where components are found by name: the built-in ones below, entry points of other packages, and ``plugins:`` files.

A component is a class named by an import string, so that listing names and checking options imports nothing heavy.
Adding one to the project is one file and one line here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError
from bwbench.base.explain import nearest
from bwbench.base.plugin_siblings import PLUGIN_SIBLINGS


@dataclass(frozen=True)
class Entry:
    """A component's name, where its class is (``module:Class``), one line about it, and who provides it.

    ``installed``: an entry point of another package names it.
    """

    name: str
    target: str
    summary: str
    provider: str = "bwbench"
    installed: bool = False


class Registry:
    """The components of one kind.

    Outside packages add to it by an entry point in the group ``bwbench.<kind>``; a Python file named under
    ``plugins:`` adds to it by calling ``register`` on import.
    """

    def __init__(
        self, kind: str, package: str, entries: Iterable[tuple[str, str, str]], gone: Mapping[str, str] | None = None
    ) -> None:
        """Make one of what is built in.

        Args:
            entries: name, ``module:Class`` below ``package``, and one line about it.
            gone: names that older versions had, and a sentence on what is there in their place.
        """
        self.kind = kind
        self._gone = dict(gone or {})
        self._entries = {name: Entry(name, f"{package}.{target}", summary) for name, target, summary in entries}
        self._classes: dict[str, type[Any]] = {}
        self._entry_points_read = False

    def __iter__(self) -> Iterator[Entry]:
        self._read_entry_points()
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:  # what is built in needs no look at what else is installed
            self._read_entry_points()
        return name in self._entries

    def names(self) -> list[str]:
        """All names, built-in ones first, in the order in which they were registered."""
        return [entry.name for entry in self]

    def register(self, name: str, component: type[Any], summary: str) -> None:
        """Add a class under ``name``; raises ConfigError where another class has that name already."""
        known = self._classes.get(name)
        if name in self and known is not component and getattr(known, "__qualname__", None) != component.__qualname__:
            raise ConfigError(f"{self.kind}: the name {name!r} is taken by {self._entries[name].target}")
        target = f"{component.__module__}:{component.__qualname__}"
        self._entries[name] = Entry(name, target, summary, provider=component.__module__)
        self._classes[name] = component

    def load(self, name: str) -> type[Any]:
        """The class called ``name``; raises ConfigError with the nearest name where there is none."""
        if name not in self._classes:
            if name not in self:
                raise ConfigError(self.unknown(name))
            module, _, attribute = self._entries[name].target.partition(":")
            self._classes[name] = getattr(importlib.import_module(module), attribute)
        return self._classes[name]

    def package_of(self, name: str) -> str | None:
        """What another installed package is imported as whose entry point has this name; None of all else."""
        entry = self._entries.get(name) if name in self else None
        return entry.target.partition(":")[0].partition(".")[0] if entry is not None and entry.installed else None

    def unknown(self, name: object, hint: str = "") -> str:
        """The message for a name that is not here: ``hint``, what is in its place, or the nearest name; all names."""
        known = f"Known: {', '.join(self.names())}."
        if not hint and name in self._gone:
            return f"{self.kind} {name!r} is no more. {self._gone[str(name)]} {known}"
        return f"unknown {self.kind} {name!r}.{hint or nearest(name, self.names())} {known}"

    def _read_entry_points(self) -> None:
        if self._entry_points_read:
            return
        self._entry_points_read = True
        for point in entry_points(group=f"bwbench.{self.kind}"):
            if point.name not in self._entries:
                provider = point.dist.name if point.dist else point.value
                self._entries[point.name] = Entry(point.name, point.value, _summary_of(point), provider, installed=True)


def _summary_of(point: EntryPoint) -> str:
    """What its package says of itself (``description`` in pyproject.toml), and who that is; imports no class."""
    if point.dist is None:
        return f"from {point.value}"
    said = point.dist.metadata["Summary"] if "Summary" in point.dist.metadata else ""
    return f"{said} (from {point.dist.name})" if said else f"from {point.dist.name}"


ALGORITHMS = Registry(
    "algorithm",
    "bwbench.methods.algorithms",
    [
        ("every-step", "every_step:EveryStep", "average gradients in every optimizer step"),
        (
            "torch-post-local-sgd",
            "ddp_exchange:TorchPostLocalSgd",
            "torch's own: DDP at first, later models are averaged every so many steps",
        ),
        ("single", "single:Single", "one node alone: is a second one worth it at all?"),
        ("local-sgd", "local_sgd:LocalSgd", "train alone, average the parameters every so many steps"),
        ("diloco", "diloco:Diloco", "train alone, an outer Nesterov step every so many steps"),
        ("streaming-diloco", "diloco:StreamingDiloco", "DiLoCo in fragments that are sent while the nodes compute"),
        ("muloco", "diloco:Muloco", "DiLoCo with Muon inside, whose steps agree better among nodes"),
        ("muloco-1", "diloco:Muloco1", "MuLoCo on one node alone: outer steps, and nobody to agree with"),
        ("eager-diloco", "eager_diloco:EagerDiloco", "DiLoCo whose means have a whole period to arrive"),
        ("noloco", "noloco:Noloco", "DiLoCo in pairs that are drawn anew each time, without an all-reduce"),
        ("sparta", "sparta:Sparta", "average a few parameters at random places, the same on all nodes"),
        ("des-loc", "des_loc:DesLoc", "local Adam: average parameters now and then, its moments more rarely"),
        (
            "decentralized",
            "decentralized:Decentralized",
            "average weights, which are sent while the gradients are computed",
        ),
        (
            "low-precision-decentralized",
            "decentralized:LowPrecisionDecentralized",
            "tell both neighbours how the weights have changed, compressed",
        ),
        (
            "async",
            "async_model_average:AsyncModelAverage",
            "train without waiting; a thread averages the weights now and then",
        ),
        ("qadam", "qadam:QAdam", "Adam with a frozen variance and a compressed momentum"),
        ("demo", "demo:Demo", "a step of one size by the sign of the mean of what each node's momentum lets go"),
        (
            "deco-sgd",
            "deco_sgd:DecoSgd",
            "the largest entries some steps late: how many and how late follows from what the link does",
        ),
        (
            "hivemind",
            "hivemind_average:HivemindAverage",
            "hivemind's average of parameters, as a peer (extra [hivemind])",
        ),
        (
            "no-communication",
            "single:NoCommunication",
            "averages for free, off the clock: the headroom that a perfect network would give",
        ),
    ],
)
COLLECTIVES = Registry(
    "collective",
    "bwbench.methods.collectives",
    [
        ("none", "collective:NoCollective", "nothing crosses the link"),
        ("torch", "torch_ddp:TorchDdp", "torch's own DistributedDataParallel over gloo"),
        ("ring", "ring:Ring", "our pipelined ring all-reduce: reduce-scatter, then all-gather"),
        ("all-gather", "scatter_gather:AllGather", "every node sends its payload to all others"),
        ("parameter-server", "parameter_server:ParameterServer", "all send to one node, which averages and sends back"),
        (
            "scatter-gather",
            "scatter_gather:ScatterGather",
            "every node averages one chunk for all: ByteGrad's exchange, a sharded parameter server",
        ),
        ("gossip-pair", "gossip:GossipPair", "averages with one other node, in turn"),
        ("neighbours", "gossip:Neighbours", "averages with both neighbours on a ring"),
        ("hierarchical", "hierarchical:Hierarchical", "one node of each host crosses the link for all of its host"),
        ("sharded", "sharded:Sharded", "the nodes of a host share what crosses the link: each carries one part"),
    ],
)
COMPRESSIONS = Registry(
    "compression",
    "bwbench.methods.compression",
    [
        ("none", "codec:NoCompression", "fp32 values as they are"),
        ("fp16", "fp16:Fp16", "half precision: half the bytes"),
        ("bf16", "fp16:Bf16", "bfloat16: half the bytes, the range of fp32"),
        ("int8", "int8:Int8", "8 bits between minimum and maximum, as ByteGrad"),
        ("int4", "int8:Int4", "4 bits and a scale for each block of elements"),
        ("int2", "sign:Int2", "2 bits: the sign, and which of two magnitudes of a block"),
        ("sign", "sign:Sign", "1 bit and a scale for each block of elements"),
        ("qsgd", "stochastic:Qsgd", "rounded at random to a few levels of a block's norm"),
        ("terngrad", "stochastic:TernGrad", "minus one, zero or one times a scale, at random"),
        ("natural", "stochastic:Natural", "powers of two, at random: sign and exponent in 8 bits"),
        ("threshold", "sparse:Threshold", "only entries above a threshold, the rest kept back"),
        ("top-k", "sparse:TopK", "only the largest entries, a fixed share; the rest kept back"),
        (
            "random-k",
            "random_k:RandomK",
            "entries at random places, the same on all nodes: no indices, and a ring adds them up",
        ),
        (
            "random-subset",
            "random_subset:RandomSubset",
            "entries at random places, the same on all nodes, for another codec to choose from",
        ),
        ("dct-top-k", "dct_top_k:DctTopK", "the largest frequencies of each block of a matrix, as DeMo"),
        ("dgc", "dgc:Dgc", "deep gradient compression: the largest entries of a momentum kept by each node"),
        ("powersgd", "powersgd:PowerSgd", "PowerSGD: matrices of low rank, averaged by factors"),
    ],
)
MODELS = Registry(
    "model",
    "bwbench.training.models",
    [
        ("logistic", "mlp:Logistic", "one linear layer"),
        ("mlp", "mlp:Mlp", "fully connected layers"),
        ("cnn", "cnn:Cnn", "small convolutional network, about 200 k parameters on 28x28"),
        ("cnn-large", "cnn:CnnLarge", "convolutional network of 1-2 M parameters"),
        ("resnet8", "resnet:Resnet8", "residual network of 8 layers for 32x32 images"),
        ("resnet20", "resnet:Resnet20", "residual network of 20 layers for 32x32 images"),
        ("char-transformer", "char_transformer:CharTransformer", "small decoder for characters"),
        (
            "shapes",
            "shapes:Shapes",
            "the shapes of a real model (vgg16, bert-large, …): times alone, nothing is learnt",
        ),
    ],
)
DATASETS = Registry(
    "dataset",
    "bwbench.training.datasets",
    [
        ("digits", "digits:Digits", "1,797 grey 8x8 digits, inside scikit-learn: no download"),
        ("mnist", "pictures:Mnist", "70,000 grey 28x28 digits"),
        ("fashion-mnist", "pictures:FashionMnist", "70,000 grey 28x28 pictures of clothes"),
        ("cifar10", "pictures:Cifar10", "60,000 colour 32x32 pictures in 10 classes"),
        ("tinyshakespeare", "tinyshakespeare:TinyShakespeare", "1.1 M characters of plays"),
        ("synthetic", "synthetic:Synthetic", "Gaussian classes of any shape: for tests and timing"),
        ("none", "no_data:NoData", "no samples: what a model of shapes is trained on, by itself"),
    ],
)
OPTIMIZERS = Registry(
    "optimizer",
    "bwbench.training.loop",
    [
        ("sgd", "optimizers:Sgd", "stochastic gradient descent with momentum"),
        ("adam", "optimizers:Adam", "Adam"),
        ("adamw", "optimizers:AdamW", "Adam with decoupled weight decay"),
        ("muon", "optimizers:Muon", "momentum made orthogonal for matrices, AdamW for all else"),
    ],
)
WEIGHT_AVERAGES = Registry(
    "weight_average",
    "bwbench.training.loop",
    [
        ("none", "weight_averages:NoAverage", "the weights as they are"),
        ("ema", "weight_averages:Ema", "an exponential moving average of the weights"),
        ("tail", "weight_averages:Tail", "the mean of the weights over the last part of the training"),
    ],
)
PARTITIONS = Registry(
    "partition",
    "bwbench.training.datasets",
    [
        ("iid-reshuffled", "partition:IidReshuffled", "a new common shuffle every epoch, dealt out"),
        ("iid-fixed", "partition:IidFixed", "every node keeps its own random share"),
        ("dirichlet", "partition:Dirichlet", "every node keeps a share with its own mix of classes"),
    ],
)
FIGURES = Registry(
    "figure",
    "bwbench.results.figures",
    [
        ("accuracy-over-time", "accuracy_curves:AccuracyOverTime", "accuracy by training time"),
        ("accuracy-over-samples", "accuracy_curves:AccuracyOverSamples", "accuracy by samples, of virtual nodes"),
        ("accuracy-over-bytes", "accuracy_curves:AccuracyOverBytes", "accuracy by bytes on the wire"),
        ("time-to-accuracy", "bars:TimeToAccuracy", "who reached the target first"),
        ("arrivals", "arrivals:Arrivals", "share of repeats that reached the target, where some did not"),
        ("step-time", "bars:StepTime", "where the time of a step goes"),
        (
            "bandwidth",
            "bandwidth:TimeToAccuracyByBandwidth",
            "time over the shortest at each bandwidth, where the matrix has several",
        ),
        ("speedup", "speedup:SpeedUp", "speed-up over ddp taken apart: less time a sample, fewer samples"),
        ("throughput", "bandwidth:Throughput", "samples per second against bandwidth"),
        ("best-algorithm", "best_algorithm:BestAlgorithm", "who may be the fastest, by bandwidth and latency"),
        ("batch-size", "batch_size:BatchSize", "samples and time to accuracy by batch"),
        ("nodes", "over_one_node:SpeedUpByNodes", "speed-up over one node by number of nodes"),
        ("topology", "topology_by_medium:TopologyByMedium", "central against decentral averaging, by medium"),
        ("links", "links_compared:LinksCompared", "time to accuracy on links of several kinds"),
        ("pareto", "against_bytes:Pareto", "time or accuracy against bytes, with the best arms marked"),
        ("precision", "precision:Precision", "accuracy lost to compression, and the bytes saved"),
    ],
    gone={
        "viability": "The figure 'nodes' has speed-ups over one node, and its table the load of the link with each.",
        "link": "`bwbench report FOLDER` says in numbers how far links were from what was asked.",
    },
)

REGISTRIES: dict[str, Registry] = {
    "algorithms": ALGORITHMS,
    "collectives": COLLECTIVES,
    "compressions": COMPRESSIONS,
    "models": MODELS,
    "datasets": DATASETS,
    "optimizers": OPTIMIZERS,
    "weight_averages": WEIGHT_AVERAGES,
    "partitions": PARTITIONS,
    "figures": FIGURES,
}


def load_plugin(path: Path) -> None:
    """Import a user's Python file, which registers its components on import.

    Importing the same file twice does nothing the second time. Raises ConfigError where the file is missing or
    raises on import.
    """
    path = path.resolve()
    name = f"bwbench_plugin_{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return
    if not path.is_file():
        raise ConfigError(f"plugin {str(path)!r} is not a file; name an existing Python file under 'plugins:'")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"plugin {str(path)!r} cannot be imported; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    PLUGIN_SIBLINGS.serve(path.parent)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where = f"{path}:{line}" if (line := _line_in(path, error)) is not None else str(path)
        raise ConfigError(f"plugin {where} failed on import: {type(error).__name__}: {error}") from error


def _line_in(path: Path, error: Exception) -> int | None:
    """Where in the file of a plugin an error comes from; None where it is not known."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)
