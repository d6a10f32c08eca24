"""Checks the gradients of every model in a folder, fused and standard, in the onnxruntime that is installed.

    python tools/check_models.py FOLDER [--only TEXT ...] [--inputs inputs.json]

Where FOLDER has an index.json, it names for each file a reference (.npz: in_i inputs, v_i cotangents, g/<parameter>)
and says how initializers map to its parameters. Any other folder is searched for .onnx files, and PyTorch gives the
reference, in float64, on random inputs (torch_graph.py); `inputs.json` may say their shapes, or give them:
{"part of a path": {"x": [1, 3, 48, 160], "ids": {"shape": [2, 12], "below": 100}, "rate": {"value": 16000},
"picture": {"file": "picture.npy"}}}.

The rule: ‖gradient − reference‖ ≤ 1e-4·‖reference‖ for every parameter, fused and standard, and the two agree as well.
A reference below 1e-6 of the whole gradient is rounding (a bias before a batch normalisation): its gradient must be
below 1e-6, too. Where PyTorch is the judge, its own float32 gradient may be off by more than 1e-4 (kinks, saturation);
then ours may be off by 3 times as much, and such tensors are counted apart. There the standard gradient also runs in
PyTorch, in float64, where it must equal autograd to 1e-6 for every tensor (constants such as 2/√π are floats in the
file): a file of which only that holds is "rounded", if it is within 1e-3, and not wrong. Tensors that are not weights
(the 3 and the 6 of a hard swish, sums over a whole picture that cancel) are judged in float64 alone. Each file runs in
a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

BOUND, NOTHING, SLACK = 1e-4, 1e-6, 3.0
EXACT, ROUNDED = 1e-6, 1e-3  # in float64; in float32 where the formulas are exact
SECONDS = 600


@dataclass
class Task:
    """A file with what is needed to judge it: a reference of its own, or shapes of inputs."""

    path: Path
    name: str
    variant: dict | None = None
    shapes: dict = field(default_factory=dict)


@dataclass
class Verdict:
    state: str  # right, rounded, wrong, refused, skipped, failed
    text: str
    worst: float = 0.0


# ---- what to check


def tasks(folder: Path, only: list[str], inputs: dict) -> Iterator[Task]:
    index = folder / "index.json"
    found = _indexed(folder, index) if index.exists() else _searched(folder, inputs)
    return (t for t in found if not only or any(text in t.name for text in only))


def _indexed(folder: Path, index: Path) -> Iterator[Task]:
    for model, entry in json.loads(index.read_text()).items():
        for kind, variant in entry["variants"].items():
            name = f"{model}.{kind}.onnx"
            yield Task(folder / name, name, variant)


def _searched(folder: Path, inputs: dict) -> Iterator[Task]:
    seen = set()
    for path in sorted(folder.rglob("*.onnx")):
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest in seen:
            continue
        seen.add(digest)
        name = str(path.relative_to(folder))
        shapes = next((v for part, v in inputs.items() if part in name), {})
        yield Task(path, name, shapes=shapes)


# ---- gradients of one file


def gradients(path: Path, wrt: list[str] | None, feeds: dict, cotangents: dict) -> dict:
    """{ops: {parameter: gradient}} in float64."""
    import onnx
    import onnxruntime

    import onnxgrad

    found = {}
    for ops in ("fused", "standard"):
        model = onnxgrad.vjp(path, wrt=wrt, ops=ops)
        onnx.checker.check_model(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxgrad.session(model, options)
        known = {i.name for i in session.get_inputs()}
        given = {**feeds, **{f"{n}_grad": v for n, v in cotangents.items()}}
        results = session.run(None, {k: v for k, v in given.items() if k in known})
        named = zip((o.name for o in session.get_outputs()), results, strict=True)
        found[ops] = {
            name.removesuffix("_grad"): value.astype(np.float64)
            for name, value in list(named)[-_count(model) :]
        }
    return found


def _count(model) -> int:
    """How many gradients a model made by vjp has: outputs that end so, counted from the last."""
    names = [o.name for o in model.graph.output]
    others = [i for i, name in enumerate(names) if not name.endswith("_grad")]
    return len(names) - 1 - others[-1] if others else len(names)


def _error(got: np.ndarray, want: np.ndarray, whole: float) -> float:
    """Relative to the reference, or to the whole gradient where the reference is rounding."""
    difference, size = float(np.linalg.norm(got - want)), float(np.linalg.norm(want))
    if size <= NOTHING * whole:
        return difference / max(whole, 1e-300) / NOTHING * BOUND
    return difference / size


def judge(found: dict, references: dict, own: dict | None = None) -> Verdict:
    """Compare both kinds with the reference; `own` is the error of the judge's own float32."""
    whole = float(np.sqrt(sum(np.linalg.norm(r) ** 2 for r in references.values())))
    worst, bad, hard = 0.0, [], 0
    for name, reference in references.items():
        fused, standard = (found[ops][name].reshape(reference.shape) for ops in found)
        pairs = ((fused, reference), (standard, reference), (fused, standard))
        errors = [_error(*pair, whole) for pair in pairs]
        allowed = max(BOUND, SLACK * own[name]) if own else BOUND
        hard += max(errors) > BOUND and max(errors) <= allowed
        if not max(errors) <= allowed:
            bad.append((name, max(errors)))
        elif max(errors) <= BOUND:
            worst = max(worst, max(errors))
    text = f"{len(references)} parameters, worst {worst:.1e}"
    text += f", {hard} as far off as PyTorch's own float32" if hard else ""
    if not bad:
        return Verdict("right", text)
    off = ", ".join(f"{n} {error:.1e}" for n, error in bad[:4])
    return Verdict("wrong", f"{text}; off: {off}", max(error for _, error in bad))


# ---- a reference of its own


def check_indexed(task: Task) -> Verdict:
    import onnx

    model = onnx.load(task.path)
    data = np.load(task.path.parent / task.variant["ref"])
    kept = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in kept]
    feeds = {i.name: _single(data[f"in_{k}"]) for k, i in enumerate(inputs)}
    cotangents = {o.name: _single(data[f"v_{k}"]) for k, o in enumerate(model.graph.output)}
    mapped = {
        name.removesuffix(" (Constant node)"): entry
        for name, entry in task.variant["map"].items()
        if "param" in entry
    }
    found = gradients(task.path, list(mapped), feeds, cotangents)
    references = {n: _expected(data, e, mapped) for n, e in mapped.items()}
    for own in found.values():
        _add_shared(own, mapped)
    return judge(found, references)


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _expected(data, entry: dict, mapped: dict) -> np.ndarray:
    """The reference in the layout of the initializer."""
    names, how = entry["param"], entry["how"]
    if isinstance(names, str):
        return data[f"g/{names}"].T if how.startswith("transposed") else data[f"g/{names}"]
    order = [int(n) for n in re.search(r"\[(.*?)\]", how)[1].split(",")]

    def gates(name):
        blocks = np.split(data[f"g/{name}"], len(order))
        return np.concatenate([blocks[i] for i in order])

    parts = [gates(name) for name in names]
    if "concat" in how:  # bias_ih of every direction, then bias_hh
        half = len(parts) // 2
        parts = [np.concatenate(pair) for pair in zip(parts[:half], parts[half:], strict=True)]
    return np.stack(parts)


def _add_shared(own: dict, mapped: dict) -> None:
    """A parameter that an exporter wrote twice has the sum of both gradients."""

    def turned(name, gradient):
        return gradient.T if mapped[name]["how"].startswith("transposed") else gradient

    sums = {
        name: sum((turned(n, own[n]) for n in e["sum_with"]), turned(name, own[name]))
        for name, e in mapped.items()
        if "sum_with" in e
    }
    own.update((name, turned(name, total)) for name, total in sums.items())


# ---- PyTorch as the judge


def check_with_torch(task: Task) -> Verdict:
    import onnx
    import torch
    import torch_graph

    import onnxgrad
    from onnxgrad.graph import load

    torch.set_num_threads(1)
    prepared = load(task.path)
    feeds = _random_feeds(prepared, task.shapes)
    model = onnx.load(task.path)
    try:
        standard = onnxgrad.vjp(task.path, ops="standard")
    except onnxgrad.GradientError as refusal:
        return Verdict("refused", str(refusal))
    arrays = _arrays(model, _names(standard))
    if not arrays:
        return Verdict("skipped", "has no float weights in its main graph")
    cotangents = _cotangents(model, feeds, torch_graph)
    exact, single = (
        _autograd(torch_graph, model, feeds, arrays, cotangents, dtype)
        for dtype in (torch.float64, torch.float32)
    )
    whole = float(np.sqrt(sum(np.linalg.norm(r) ** 2 for r in exact.values())))
    own = {n: _error(single[n], exact[n], whole) for n in exact}
    found = gradients(task.path, list(arrays), feeds, cotangents)
    try:
        formulas = _in_double(torch_graph, standard, feeds, cotangents, exact, whole)
    except torch_graph.Missing as missing:
        verdict = judge(found, exact, own)
        return replace(verdict, text=f"{verdict.text}; not in float64: {missing}")
    verdict = judge(found, _weights(task.path, exact), own)
    if formulas > EXACT:
        verdict.state = "wrong"
    elif verdict.state == "wrong" and verdict.worst <= ROUNDED:
        verdict.state = "rounded"
    verdict.text = f"in float64 {formulas:.0e}; {verdict.text}"
    return verdict


def _in_double(torch_graph, standard, feeds, cotangents, exact, whole) -> float:
    """How far the standard gradient is from autograd, both in PyTorch and in float64."""
    import torch

    given = {**feeds, **{f"{n}_grad": v for n, v in cotangents.items()}}
    with torch.no_grad():
        results = torch_graph.run(standard, given, {}, torch.float64)
    return max(_error(results[f"{n}_grad"].numpy(), e, whole) for n, e in exact.items())


def _weights(path: Path, references: dict) -> dict:
    """Leave out what `inspect` calls a setting, a table, a statistic."""
    import onnxgrad

    others = {p.name for p in onnxgrad.inspect(path).parameters if p.kind != "weight"}
    return {n: r for n, r in references.items() if n not in others}


def _names(gradient) -> list[str]:
    outputs = gradient.graph.output
    names = [o.name for o in outputs][-_count(gradient) or len(outputs) :]
    return [n.removesuffix("_grad") for n in names]


def _arrays(model, wrt: list[str]) -> dict[str, np.ndarray]:
    """The trainable tensors, wherever they are written; the names of bodies may repeat."""
    from onnx import numpy_helper

    found: dict[str, list] = {}

    def search(graph):
        for t in graph.initializer:
            found.setdefault(t.name, []).append(t)
        for node in graph.node:
            for a in node.attribute:
                if node.op_type == "Constant" and a.name == "value":
                    found.setdefault(node.output[0], []).append(a.t)
                if a.type == a.GRAPH:
                    search(a.g)

    search(model.graph)
    return {n: numpy_helper.to_array(found[n][0]) for n in wrt if len(found.get(n, ())) == 1}


def _random_feeds(prepared, shapes: dict) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for value in prepared.graph.inputs:
        if value.name in prepared.graph.initializers:
            continue
        given = shapes.get(value.name, shapes.get("*"))
        given = given if isinstance(given, dict) else {"shape": given}
        shape = given.get("shape") or [d if isinstance(d, int) else 2 for d in value.shape or ()]
        kind = value.dtype.numpy()
        if "file" in given:
            draw = np.load(given["file"])
        elif "value" in given:
            draw = given["value"]
        elif kind.kind == "f":
            draw = rng.standard_normal(shape) * 0.5
        else:
            draw = rng.integers(0, given.get("below", 2), shape)
        feeds[value.name] = np.asarray(draw, kind)
    return feeds


def _cotangents(model, feeds: dict, torch_graph) -> dict[str, np.ndarray]:
    """Random ones, scaled so that an output that is nearly saturated counts as much as others."""
    import torch

    rng = np.random.default_rng(1)
    outputs = torch_graph.run(model, feeds, {}, torch.float64)
    return {
        name: rng.standard_normal(tuple(y.shape)).astype(np.float32)
        for name, y in outputs.items()
        if y.is_floating_point()
    }


def _autograd(torch_graph, model, feeds, arrays, cotangents, dtype) -> dict[str, np.ndarray]:
    import torch

    leaves = {n: torch.tensor(a).to(dtype).requires_grad_() for n, a in arrays.items()}
    outputs = torch_graph.run(model, feeds, leaves, dtype)
    loss = sum((outputs[n] * torch.tensor(v).to(dtype)).sum() for n, v in cotangents.items())
    loss.backward()
    return {
        n: np.zeros(a.shape) if leaves[n].grad is None else leaves[n].grad.double().numpy()
        for n, a in arrays.items()
    }


# ---- running


def _work(task: Task, answers) -> None:
    try:
        verdict = check_indexed(task) if task.variant else check_with_torch(task)
    except Exception as error:
        verdict = Verdict("failed", f"{type(error).__name__}: {error}")
    answers.put(verdict)


def _in_process(task: Task) -> Verdict:
    """A foreign file can crash the runtime, or keep it busy for ever."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_work, args=(task, answers))
    process.start()
    ends = time.monotonic() + SECONDS
    while process.is_alive() and time.monotonic() < ends and answers.empty():
        process.join(0.05)
    if not answers.empty():
        verdict = answers.get()
    elif process.is_alive():
        verdict = Verdict("failed", f"no answer within {SECONDS} s")
        process.terminate()
    else:
        verdict = Verdict("failed", f"the process ended with code {process.exitcode}")
    process.join()
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="parts of file names")
    parser.add_argument("--inputs", type=Path, help="shapes of inputs, as JSON")
    arguments = parser.parse_args()
    inputs = json.loads(arguments.inputs.read_text()) if arguments.inputs else {}
    counts = Counter()
    for task in tasks(arguments.folder, arguments.only, inputs):
        started = time.perf_counter()
        verdict = _in_process(task)
        counts[verdict.state] += 1
        text = verdict.text if verdict.state == "refused" else verdict.text[:300]
        took = f"{time.perf_counter() - started:.1f} s"
        print(f"{verdict.state:8} {task.name} ({took}): {text}", flush=True)
    print(", ".join(f"{n} {state}" for state, n in counts.items()) or "no model was found")
    sys.exit(not counts or bool(counts["wrong"] + counts["failed"]))


if __name__ == "__main__":
    main()
