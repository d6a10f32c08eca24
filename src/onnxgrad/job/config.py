"""Every setting of a run, defined once: flags of `onnxgrad train`, keys of a config file, saved arguments."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onnxgrad.data.table import is_number
from onnxgrad.errors import ConfigError, FileError
from onnxgrad.files.text import read_text


def setting(default: Any, help: str, kind: Any = str, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "kind": kind, **more})


KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
LARGEST = sys.float_info.max  # below infinity
SMALLEST = 1e-30  # above 0


@dataclass
class Config:
    """The settings of `onnxgrad train`, with their defaults."""

    data: str = setting(
        "",
        "training data: .npz, .csv, .jsonl, .parquet, a folder of .npy files, or of images or sounds by class",
        shown="FILE",
    )
    output: str = setting("", "where to write the tuned model", short="-o", shown="FILE")
    target: str = setting(
        "",
        "the target column or array, several separated by commas, or by output: box=x|y,score=s (default: guessed)",
    )
    ignore: str = setting("", "columns to leave out, separated by commas")
    categories: str = setting(
        "", "columns of categories, separated by commas (default: those of text)"
    )
    standardize: bool = setting(
        False, "bring every column to mean 0 and deviation 1, inside the written model", bool
    )
    missing: str = setting(
        "", "mean or median: what missing numbers become, inside the written model"
    )
    resize: str = setting(
        "",
        "pictures: the shorter side, or HEIGHTxWIDTH (default: the model's size)",
        shown="PIXELS",
    )
    crop: str = setting(
        "", "pictures: the middle that is cut out, one side or HEIGHTxWIDTH", shown="PIXELS"
    )
    mean: str = setting(
        "", "pictures: what is subtracted from each channel: 0.5, 0.485,0.456,0.406, or imagenet"
    )
    std: str = setting("", "pictures: what each channel is divided by, or imagenet")
    rescale: str = setting(
        "", "pictures: what bytes are multiplied by before that (default 1/255 for floats)"
    )
    channels_last: bool = setting(
        False, "pictures: [rows, height, width, channels] (default: by the model's shape)", bool
    )
    augment: str = setting(
        "",
        "pictures changed at random: flip, crop, rotate, colour, mixup, each with or without its strength: "
        "flip,crop=0.3,rotate=15",
    )
    sample_rate: int = setting(
        0, "sounds: samples per second; others are resampled (default: the files' own)", int,
        limits=(0, 10_000_000),
    )  # fmt: skip
    seconds: float = setting(
        0.0, "sounds: how long they are; shorter ones are followed by silence", float,
        limits=(0, 86_400),
    )  # fmt: skip
    tokenizer: str = setting(
        "", "text: a tokenizer.json (default: the one beside the model)", shown="FILE"
    )
    max_length: int = setting(
        0, "text: at most this many tokens; longer texts are cut (default: the model's)", int,
        limits=(0, 1 << 20),
    )  # fmt: skip
    pack: bool = setting(
        False, "text: examples one after the other in rows of --max-length, nothing padded", bool
    )
    text: str = setting("", "text: its column, or two for a pair (default: guessed)")
    constant: str = setting("", "inputs that are one number in every batch: sr=16000,state=0")
    val: str = setting(
        "0.2", "validation data: a file, or the share of rows to set aside; 0 for none"
    )
    split: str = setting(
        "",
        "how rows are set aside: random, stratified, time, time:COLUMN or group:COLUMN (default: by class)",
    )
    folds: int = setting(
        0,
        "train this many times, each with another part set aside, then once on all rows; 0: only once",
        int,
        limits=(0, 1000),
    )
    repeat: int = setting(
        1, "train with this many seeds, for the spread of the scores", int, limits=(1, 1000)
    )
    loss: str = setting(
        "",
        "cross_entropy, nll, nll_probabilities, bce, bce_probabilities, mse, l1 or huber; by output: "
        "box=l1,score=bce (default: guessed)",
    )
    axis: int = setting(
        0, "axis of the output that holds the classes; 0: found from the targets", int,
        limits=(-8, 8),
    )  # fmt: skip
    model_output: str = setting(
        "", "the output that the loss judges (default: the first float output)"
    )
    class_weights: str = setting(
        "", "balanced, a number for each class, or name=number: how much a class counts"
    )
    sample_weights: str = setting("", "a column that says how much each row counts")
    label_smoothing: float = setting(
        0.0, "share of the target that is spread over all classes", float, limits=(0, 1)
    )
    ignore_index: str = setting("", "a label that does not count, such as -100")
    optimizer: str = setting("adamw", "adamw, adam or sgd")
    lr: float = setting(1e-3, "learning rate", float, limits=(SMALLEST, LARGEST))
    epochs: int = setting(10, "passes over the data", int, limits=(1, math.inf))
    batch_size: int = setting(32, "rows per step", int, limits=(1, math.inf))
    classes: str = setting(
        "", "a new last layer for this many classes; auto: as many as the data have"
    )
    head_first: int = setting(
        0,
        "epochs in which only the last layer is trained, before the others",
        int,
        limits=(0, math.inf),
    )
    trainable: str = setting(
        "all", "all, head, or patterns separated by commas: 'encoder.*,*.bias'; -name leaves out"
    )
    metrics: str = setting(
        "",
        "separated by commas: accuracy, balanced_accuracy, top5, precision, recall, f1 (each also _macro, _weighted), "
        "auc, average_precision, mae, rmse, mape, r2, perplexity; of an output: box=mae (default: by the loss)",
    )
    patience: int = setting(
        0, "stop after this many epochs without improvement; 0: never", int, limits=(0, math.inf)
    )
    clip: float = setting(
        0.0, "limit for the norm of the gradients; 0: none", float, limits=(0, LARGEST)
    )
    accumulate: int = setting(1, "batches per optimizer step", int, limits=(1, math.inf))
    schedule: str = setting("constant", "constant, linear, cosine, step, exponential or plateau")
    warmup: int = setting(
        0, "steps at the start over which the learning rate rises", int, limits=(0, math.inf)
    )
    every: int = setting(
        0,
        "epochs between drops (--schedule step), or of patience (plateau); 0: 10",
        int,
        limits=(0, math.inf),
    )
    factor: float = setting(
        0.0,
        "what --schedule step, exponential and plateau multiply by; 0: their default",
        float,
        limits=(0, 1),
    )
    floor: float = setting(
        0.0, "the rate at which --schedule cosine and plateau end", float, limits=(0, LARGEST)
    )
    freeze_bn: bool = setting(False, "keep the statistics of batch normalisation", bool)
    dropout: float = setting(
        -1.0, "dropout rate; below 0: as in the model", float, limits=(-math.inf, 0.999)
    )
    tie: str = setting("", "shared tensors to keep as one, separated by commas; all: every one")
    untie: str = setting(
        "", "shared tensors to give copies of their own, separated by commas; all: every one"
    )
    lora: str = setting(
        "", "train an adapter: r=8,alpha=16,dropout=0.05,targets=q_proj|v_proj,variant=dora,…"
    )
    lora_from: str = setting(
        "", "begin with an adapter: a peft folder or an .onnx_adapter file", shown="PATH"
    )
    merge: bool = setting(
        False, "write the model with the adapter in it, instead of an adapter folder", bool
    )
    keep_float32: bool = setting(False, "write a half-precision model in float32", bool)
    quantize: str = setting(
        "",
        "train for an integer model: int8, w4a8, or with settings: int8,activations=uint8,method=entropy",
    )
    quantize_nodes: str = setting(
        "", "other precisions by node: 'head*=float,conv1=w4a8,block*/fc=w4b32a8'"
    )
    quantize_scales: str = setting("", "learned, observed or fixed (default learned)")
    seed: int = setting(0, "seed of shuffling, splitting and dropout", int, limits=(0, 2**63 - 1))
    threads: int = setting(0, "threads; 0: all cores", int, limits=(0, 4096))
    micro_batches: int = setting(
        0,
        "cut every batch into this many, a power of two; the bits depend on it, not on the number of processes "
        "(0: 8 under mpiexec, else 1)",
        int,
        limits=(0, 4096),
    )
    fast_sum: bool = setting(
        False,
        "under mpiexec: let MPI add up in its own order; the bits depend on the processes",
        bool,
    )
    save_every: float = setting(
        300.0, "seconds between checkpoints in an epoch that takes longer; 0: after epochs only", float,
        limits=(0, LARGEST),
    )  # fmt: skip
    max_time: float = setting(
        0.0, "stop after this many seconds; 0: never", float, limits=(0, LARGEST)
    )
    push: str = setting(
        "",
        "upload the tuned model and its card to this repository of the Hugging Face hub",
        shown="ORG/REPO",
    )
    report_to: str = setting(
        "", "trackers, separated by commas: mlflow, wandb, trackio, tensorboard (default: none)"
    )
    run_dir: str = setting("", "folder of the run (default: runs/<model>-<number>)")

    def check(self) -> None:
        """Refuse numbers that mean nothing, and a run without data or output."""
        if not self.data:
            raise ConfigError("no data: name a file with --data")
        if not self.output:
            raise ConfigError("no output: name the file to write with -o")
        for name, field in FIELDS.items():
            value, low, high = getattr(self, name), *field.metadata.get("limits", (None, None))
            if low is not None and not low <= value <= high:
                flag = "--" + name.replace("_", "-")
                raise ConfigError(f"{flag} is {value:g}, expected {_range(low, high)}")


def _range(low: float, high: float) -> str:
    if low == SMALLEST:
        return "a number above 0"
    least = "" if low == -math.inf else f"at least {low:g}"
    most = "" if high in (math.inf, LARGEST) else f"at most {high:g}"
    return " and ".join(filter(None, (least, most)))


FIELDS = {f.name: f for f in dataclasses.fields(Config)}


# Those that say how pictures, sounds and texts become what a model takes; eval and predict have them too.
INPUT_FLAGS = (
    "resize", "crop", "mean", "std", "rescale", "channels_last", "sample_rate", "seconds", "tokenizer",
    "max_length", "text", "constant",
)  # fmt: skip


def input_flags(settings: Any) -> dict[str, Any]:
    """Those of the settings, or of parsed arguments, that say how inputs are made; only what is said."""
    found = {name: getattr(settings, name, None) for name in INPUT_FLAGS}
    return {name: value for name, value in found.items() if value not in (None, "", 0, 0.0, False)}


def add_flags(
    parser: argparse.ArgumentParser, without: Iterable[str] = (), only: Iterable[str] = ()
) -> None:
    """One flag per setting, or for some; a flag that is not given stays out, so that a config file can set it."""
    for name, field in FIELDS.items():
        if name in without or (only and name not in only):
            continue
        flag = "--" + name.replace("_", "-")
        names = [field.metadata["short"], flag] if "short" in field.metadata else [flag]
        kind, default = field.metadata["kind"], field.default
        text = field.metadata["help"] + ("" if default in ("", False) else f" (default {default})")
        if kind is bool:
            parser.add_argument(*names, action="store_true", default=argparse.SUPPRESS, help=text)
        else:
            parser.add_argument(
                *names,
                type=kind,
                default=argparse.SUPPRESS,
                help=text,
                metavar=field.metadata.get("shown", {int: "N", float: "X", str: "TEXT"}[kind]),
            )


def command(model: str, config: Config) -> str:
    """The line that a person would type for these settings: what is as by default is left out."""
    parts = ["onnxgrad", "train", str(model)]
    for name, field in FIELDS.items():
        value = getattr(config, name)
        if value == field.default:
            continue
        parts.append(field.metadata.get("short", "--" + name.replace("_", "-")))
        if field.metadata["kind"] is not bool:
            parts.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join(parts)


def gather(options: argparse.Namespace, saved: dict[str, Any] | None = None) -> Config:
    """Defaults, then a resumed run's settings, then the config file, then the flags."""
    values = dict(saved or {})
    if getattr(options, "config", None):
        values.update(read(options.config))
    values.update({k: v for k, v in vars(options).items() if k in FIELDS})
    return Config(**values)


def read(path: str) -> dict[str, Any]:
    """The settings of a YAML file; unknown keys and wrong types are refused by name."""
    import yaml

    try:
        data = yaml.safe_load(read_text(path)) or {}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except FileError as error:
        raise ConfigError(str(error)) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ConfigError(f"{path} is nested deeper than can be followed") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} holds a {type(data).__name__}, expected settings such as 'epochs: 5'"
        )
    return dict(checked(path, str(name), value) for name, value in data.items())


def checked(path: str, name: str, value: Any) -> tuple[str, Any]:
    """The setting's own name, and the value in its kind."""
    key = name.replace("-", "_")
    if key not in FIELDS:
        near = difflib.get_close_matches(key, FIELDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(FIELDS)}"
        raise ConfigError(f"{path}: unknown setting {name!r}, {hint}")
    kind = FIELDS[key].metadata["kind"]
    plain = not isinstance(value, bool)
    if kind is float and plain and isinstance(value, (int, float, str)) and is_number(str(value)):
        return key, float(
            str(value)
        )  # YAML reads 1e-3 as text; a whole number beyond floats is infinite
    if kind is str and plain and isinstance(value, (int, float, str)):
        return key, str(value)
    if kind in (int, bool) and type(value) is kind:
        return key, value
    raise ConfigError(f"{path}: {name} is {value!r}, expected {KINDS[kind]}")


def dump(config: Config) -> str:
    """The settings as YAML, each with its meaning."""
    import yaml

    lines = []
    for name, value in dataclasses.asdict(config).items():
        text = yaml.safe_dump({name: value}, default_flow_style=False, allow_unicode=True).strip()
        lines.append(f"{text}  # {FIELDS[name].metadata['help']}")
    return "\n".join(lines) + "\n"
