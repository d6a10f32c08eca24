"""What is done with a mutated file. Returns what it came to; whatever is not one of our errors is raised."""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from pathlib import Path

import differential
import numpy as np
import onnx
import seeds

import onnxgrad
from onnxgrad.data.read import read
from onnxgrad.errors import InternalError, OnnxGradError, OutOfMemoryError
from onnxgrad.files.boundary import _on_purpose
from onnxgrad.train.files.checkpoint import _state_digest

MOST = 1 << 16  # elements of an input that is invented


class Foreign(Exception):
    """An exception that is not one of ours, or says that it is a bug."""


def guarded(name: str, action, *arguments):
    """Run a step; a refusal is a result, anything else is Foreign."""
    try:
        return action(*arguments)
    except InternalError as error:
        raise Foreign(f"{name}: {error}") from error
    except OnnxGradError as error:
        return error
    except Exception as error:
        if _on_purpose(error) or isinstance(error, OutOfMemoryError):
            return error
        raise Foreign(f"{name}: {type(error).__name__}: {str(error)[:300]}") from error


# ---- models


def model(data: bytes) -> str:
    """inspect, vjp, and one step of training."""
    guarded("inspect", onnxgrad.inspect, data)
    made = guarded("vjp", onnxgrad.vjp, data)
    trainer = guarded("Trainer", lambda: onnxgrad.Trainer(data, loss="mse", threads=1))
    if isinstance(trainer, Exception):
        return "refused" if isinstance(made, Exception) else "vjp only"
    inputs = invented(data, trainer.input_names)
    if inputs is None:
        return "no inputs"
    target = guarded("predict", lambda: trainer.predict(inputs))
    if isinstance(target, Exception):
        return "does not run"
    try:
        both = differential.compare(data, inputs)
    except differential.Differs as error:
        raise Foreign(str(error)) from error
    if isinstance(target, dict):
        target = next(iter(target.values()))
    done = guarded("step", lambda: trainer.step(inputs, np.zeros_like(target)))
    if isinstance(done, Exception):
        return "step refused"
    return "trained, both ways equal" if both == "equal" else "trained"


def invented(data: bytes, names: tuple[str, ...]) -> dict[str, np.ndarray] | None:
    """Inputs of the declared shapes, 2 for an open size."""
    found = {}
    for value in onnx.load_model_from_string(data).graph.input:
        kind = value.type.tensor_type
        if value.name not in names:
            continue
        dims = [d.dim_value if d.HasField("dim_value") else 2 for d in kind.shape.dim]
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        except KeyError:
            return None
        if any(d < 0 for d in dims) or np.prod([float(d) for d in dims]) > MOST:
            return None
        found[value.name] = np.ones(dims, dtype)
    return found


# ---- data


def dataset(data: bytes, ending: str) -> str:
    """Read a file, and every row of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"d.{ending}"
        if ending == "png":
            path = Path(folder) / "d" / "cat" / "1.png"
            path.parent.mkdir(parents=True)
        path.write_bytes(data)
        table = guarded("read", read, path.parents[1] if ending == "png" else path)
        if isinstance(table, Exception):
            return "refused"
        rows = guarded("rows", lambda: sum(len(r) for r, _ in _parts(table)))
        return "refused" if isinstance(rows, Exception) else "read"


def _parts(table):
    return itertools.islice(table.parts(list(table.columns), 4), 1000)


# ---- checkpoints

_trainer = None


def trainer():
    global _trainer
    if _trainer is None:
        _trainer = onnxgrad.Trainer(seeds.models()[0], loss="mse", threads=1)
    return _trainer


def checkpoint_files() -> dict[str, bytes]:
    """The files of a checkpoint, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step-00000001"
        x = np.ones((2, 3), np.float32)
        trainer().step(x, np.zeros((2, 2), np.float32))
        trainer().save_checkpoint(path)
        return {p.name: p.read_bytes() for p in path.iterdir()}


def checkpoint(files: dict[str, bytes]) -> str:
    """Load it into a trainer: all of it or nothing."""
    own = trainer()
    before = own.get_weights(flat=True).copy(), own.steps
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step-00000001"
        path.mkdir()
        for name, content in files.items():
            (path / name).write_bytes(content)
        done = guarded("load_checkpoint", own.load_checkpoint, path)
    if isinstance(done, Exception):
        after = own.get_weights(flat=True), own.steps
        if not np.array_equal(before[0], after[0], equal_nan=True) or before[1] != after[1]:
            raise Foreign(f"a refusal changed the trainer: {done}")
        return "refused"
    return "loaded"


def rehashed(files: dict[str, bytes]) -> dict[str, bytes]:
    """The hashes of the tensors made right again, so that what is behind them is reached."""
    try:
        state = json.loads(files["trainer_state.json"])
        for name in state["files"]:
            state["files"][name] = hashlib.sha256(files[name]).hexdigest()
        state["sha256"] = _state_digest(state)
        return {**files, "trainer_state.json": json.dumps(state).encode()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return files  # too damaged for that
