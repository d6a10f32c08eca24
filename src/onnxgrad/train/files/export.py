"""Export: the caller's own model with new numbers in it, checked before it takes its name."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxgrad.data.arrays import Batch
from onnxgrad.errors import ExportError
from onnxgrad.model.source import Source

if TYPE_CHECKING:
    from onnxgrad.train.loop.evaluation import Evaluation
    from onnxgrad.train.step.setup import Setup

# Constant folding and fused layouts of the plain session round differently: relative to the largest output.
TOLERANCE = 1e-3


def export(
    setup: Setup,
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str],
) -> None:
    """Write `setup`'s model with the store's tensors to `path`; see Trainer.save."""

    def verify(file: Path, path: Path) -> None:
        _verify(file, setup, evaluation, path)

    export_tensors(setup.source, setup.store.tensors(), path, metadata, verify)


def export_tensors(
    source: Source,
    tensors: Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    verify: Callable[[Path, Path], None] | None = None,
) -> None:
    """Write `source` with other tensors; `verify` tries the file before it takes its name."""
    path = Path(os.path.abspath(path))
    work = path.parent / f".{path.name}.unfinished-{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        data = _write(source, tensors, work, path, metadata or {})
        if verify is not None:
            verify(work / path.name, path)
        _publish(work, path, data)
    except OSError as error:
        raise ExportError(
            f"{path} could not be written: {error}; what was there is unchanged"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(
    source: Source,
    tensors: Mapping[str, np.ndarray],
    work: Path,
    path: Path,
    metadata: Mapping[str, str],
) -> list[str]:
    """Write the model and its data files into `work`; return the names of the data files."""
    model = onnx.ModelProto()
    model.CopyFrom(source.proto)
    known = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**known, **metadata})
    locations = _locations(source, path)
    for location, name in locations.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path.parent / location, work / name)
    for name, tensor in Source.tensors_of(model):
        external = {e.key: e.value for e in tensor.external_data}
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _move(tensor, locations[external["location"]])
        if name in tensors:
            _set(tensor, tensors[name], external, work)
    for name in (*locations.values(), path.name):
        if name == path.name:
            with open(work / name, "wb") as file:
                file.write(model.SerializeToString())
        handle = os.open(work / name, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return list(locations.values())


def _set(tensor: onnx.TensorProto, array: np.ndarray, external: dict[str, str], work: Path) -> None:
    """Put an array where a tensor keeps its numbers."""
    raw = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        for field in ("float_data", "double_data"):
            tensor.ClearField(field)
        tensor.raw_data = raw
        return
    location = next(e.value for e in tensor.external_data if e.key == "location")
    with open(work / location, "r+b") as file:
        file.seek(int(external.get("offset", 0)))
        file.write(raw)
    for entry in list(tensor.external_data):
        if entry.key == "checksum":  # of the old numbers
            tensor.external_data.remove(entry)


def _move(tensor: onnx.TensorProto, location: str) -> None:
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = location


def _locations(source: Source, path: Path) -> dict[str, str]:
    """Return the new name of each external file: its own, unless a file of that name is in use.

    Beside the source model, `model.onnx.data` becomes `tuned.onnx.data`. A name that exists already gets
    a suffix, so that the model that stands there keeps its numbers until the new one is complete.
    """
    found = {}
    for tensor in source.every_tensor():
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            location = next(e.value for e in tensor.external_data if e.key == "location")
            found[location] = None
    names: dict[str, str] = {}
    for location in found:
        name = location
        if source.path.parent == path.parent:
            stem = location.replace(source.path.stem, path.stem)
            name = stem if stem != location else f"{path.name}.{Path(location).name}"
        if (path.parent / name).exists():
            mark = hashlib.sha256(os.urandom(16)).hexdigest()[:8]
            name = f"{name}.{mark}"
        names[location] = name
    return names


def _publish(work: Path, path: Path, data: list[str]) -> None:
    """Move the data files, then the model: until its name changes hands the old one is whole."""
    old = _data_of(path)
    for name in data:
        (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(work / name, path.parent / name)
    os.replace(work / path.name, path)
    handle = os.open(path.parent, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    for name in old - set(data):
        if name.startswith(path.name) or path.stem in name:  # ours; others may be shared
            (path.parent / name).unlink(missing_ok=True)


def _data_of(path: Path) -> set[str]:
    """Return the names of the data files of the model that stands at `path`, if one does."""
    if not path.exists():
        return set()
    try:
        return {
            e.value
            for t in Source(path).every_tensor()
            for e in t.external_data
            if e.key == "location"
        }
    except Exception:
        return set()  # no model: nothing of it is removed


def _verify(file: Path, setup: Setup, evaluation: Evaluation, path: Path) -> None:
    """Run the file in a plain session and compare it with the trainer's own prediction."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise ExportError(
            f"{path} was not written: a plain onnxruntime session refuses the model: {error}"
        ) from error
    sample = evaluation.sample or _invented(setup)
    if sample is None or _is_random(setup):
        return
    expected = evaluation.run(Batch(sample, 0))
    got = dict(zip(setup.outputs, session.run(setup.outputs, sample), strict=True))
    for name, value in expected.items():
        if value.dtype.kind == "f" and not _close(value, got[name]):
            worst = float(np.abs(value - got[name]).max())
            raise ExportError(
                f"{path} was not written: output {name!r} of a plain session differs from the "
                f"trainer's by {worst:.3g}"
            )


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(np.allclose(a, b, rtol=0, atol=TOLERANCE * size + 1e-6, equal_nan=True))


def _invented(setup: Setup) -> dict[str, np.ndarray] | None:
    """Return inputs for a model that has not run yet; None where their shapes cannot be told."""
    rng, sample = np.random.default_rng(0), {}
    for name, value in setup.inputs.items():
        if value.shape is None or value.dtype is None:
            return None
        dims = [d if isinstance(d, int) else 2 for d in value.shape]
        dtype: Any = value.dtype.numpy()
        if np.dtype(dtype).kind == "f":
            sample[name] = rng.standard_normal(dims).astype(dtype)
        else:
            sample[name] = np.zeros(dims, dtype)
    return sample


def _is_random(setup: Setup) -> bool:
    random = ("RandomNormal", "RandomUniform", "Bernoulli", "Multinomial")
    return any(n.op_type.startswith(random) for n in setup.source.proto.graph.node)
