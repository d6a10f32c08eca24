"""Adapters and other files of tensors from strangers: what they are, how they are changed, what is done with them.

A peft folder and an .onnx_adapter file become the start of a training; a .safetensors or .npz file is merged into a
model; a checkpoint of onnxruntime-training is converted.
"""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path

import mutate
import numpy as np
import onnx
import seeds
import targets

import onnxgrad
from onnxgrad.dropin.old import checkpoint
from onnxgrad.dropin.old.convert import read_tensors, write_tensors
from onnxgrad.errors import ExportError
from onnxgrad.model.lora.settings import Lora
from onnxgrad.stepfile import merge

NET = """net (float[N, 2, 3, 3] x, int64[N] i) => (float[N, 4] y)
    { a = Conv(x, c)  b = Flatten(a)  d = Gather(e, i)  g = Add(b, d)  y = MatMul(g, f) }"""
SHAPES = {"c": (2, 2, 3, 3), "e": (5, 2), "f": (2, 4)}
Files = dict[str, bytes]


@functools.cache
def model() -> onnx.ModelProto:
    """A convolution, a table and a linear layer."""
    proto = onnx.parser.parse_model(f"{seeds.HEAD} {NET}")
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        array = rng.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def starts() -> list[tuple[str, Files]]:
    """What is changed: the kind of each, and its files by name."""
    found = []
    for variant in ("lora", "dora"):
        lora = Lora(
            r=2, targets="all-linear" if variant == "dora" else ("c", "e", "f"), variant=variant
        )
        with tempfile.TemporaryDirectory() as folder:
            trainer = onnxgrad.Trainer(model(), loss="mse", lora=lora, threads=1)
            trainer.save_adapter(folder)
            files = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
        peft = {n: files[n] for n in ("adapter_config.json", "adapter_model.safetensors")}
        found += [("peft", peft), ("ort", {"a.onnx_adapter": files["adapter.onnx_adapter"]})]
    return [*found, *_parameters()]


def _parameters() -> list[tuple[str, Files]]:
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model().graph.initializer}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("p.safetensors", "p.npz", "old.ckpt"):
            path = Path(folder) / name
            write_tensors(checkpoint.Checkpoint(arrays, {}), path)
            kind = "old" if name == "old.ckpt" else "merge"
            found.append((kind, {name: path.read_bytes()}))
    return found


def changed(files: Files, rng: random.Random) -> Files:
    """One file of them with other bytes, or with another word in its JSON."""
    name = rng.choice(sorted(files))
    data = files[name]
    if name.endswith(".json") and rng.random() < 0.8:
        data = mutate.mutate_json(data, rng)
    elif name.endswith(".safetensors") and rng.random() < 0.6:
        length = int.from_bytes(data[:8], "little")
        header = mutate.mutate_json(data[8 : 8 + length], rng)
        data = len(header).to_bytes(8, "little") + header + data[8 + length :]
    else:
        data = mutate.mutate_bytes(data, rng)
    return {**files, name: data}


def taken(kind: str, files: Files) -> str:
    """Use the files; a refusal leaves nothing behind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        only = folder / next(iter(files))
        done = targets.guarded(kind, _USES[kind], folder if kind == "peft" else only, Path(name))
        left = sorted(p.name for p in Path(name).iterdir()) != ["in"]
        if isinstance(done, Exception):
            if left and not isinstance(done, ExportError):
                raise targets.Foreign(f"{kind}: a refusal left a file: {done}")
            return f"{kind} refused"
    return f"{kind} taken"


def _start(path: Path, folder: Path) -> None:
    trainer = onnxgrad.Trainer(model(), loss="mse", lora=Lora(start=path), threads=1)
    inputs = {"x": np.ones((2, 2, 3, 3), np.float32), "i": np.zeros(2, np.int64)}
    trainer.step(inputs, np.zeros((2, 4), np.float32))


def _merge(path: Path, folder: Path) -> None:
    merge(model(), path, folder / "merged.onnx")


def _convert(path: Path, folder: Path) -> None:
    write_tensors(read_tensors(path), folder / "out.safetensors")


_USES = {"peft": _start, "ort": _start, "merge": _merge, "old": _convert}
