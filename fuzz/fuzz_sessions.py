"""One-node models with hostile shapes, attributes and subsets of outputs, through ONNX Runtime and our operators
compiled with sanitizers.

    python fuzz/fuzz_sessions.py --library build/fuzz/libonnxgrad_ops.so --models 10000 --seed 1

Models are made from the contracts by number: model n of a seed is always the same. Batches of them run in child
processes with a limit on time; a child that ends by a signal, or hangs, is a finding, and the model that it was at is
named. A model must compute, or be refused with a sentence of the operator's or of the runtime's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time

import numpy as np

BATCH = 250
SECONDS_PER_BATCH = 300  # of the processor: a busy machine is not a finding
MOST_ELEMENTS = 1 << 14

HOSTILE_DIMS = (0, 2**24, 2**28, 2**28 + 1, 2**31, 2**40, 2**60)
HOSTILE_NUMBERS = (0, -1, 2**24, 2**24 + 1, 2**31, 2**62, 2**63 - 1, -(2**63))
HOSTILE_FLOATS = (0.0, -1.0, 1e-18, 1e30, float("inf"), float("-inf"), float("nan"))
TYPES = {
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
    "float32": np.float32,
}


class Maker:
    """Draws one call of one operator."""

    def __init__(self, contract, rng: np.random.Generator):
        self.contract, self.rng = contract, rng
        self.dims: dict[str, int] = {}
        self.packs: dict[str, list[int]] = {}
        self.real = rng.choice([np.float32, np.float64])
        self.whole = rng.choice([np.int32, np.int64])
        self.small = int(rng.integers(4))

    def once(self, times: int) -> bool:
        return bool(self.rng.integers(times) == 0)

    def dim(self) -> int:
        if self.once(150):
            return int(self.rng.choice(HOSTILE_DIMS))
        return int(self.rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 17, 0]))

    def number(self, attribute) -> int:
        if self.once(40):
            return int(self.rng.choice(np.array(HOSTILE_NUMBERS, np.int64)))
        least = attribute.least if attribute.least > -1000 else -3
        return least + int(self.rng.integers(3 if self.rng.integers(4) else 40))

    def attribute(self, a):
        def real():
            if self.once(20):
                return float(self.rng.choice(HOSTILE_FLOATS))
            return float(self.rng.normal())

        def text():
            usual = a.accepted or ("Tanh", "Sigmoid", "Relu", "Affine")
            return "nonsense" if self.once(40) else str(self.rng.choice(usual))

        one = {"integer": lambda: self.number(a), "float": real, "string": text}[
            re.search("integer|float|string", a.kind)[0]
        ]
        if "list" not in a.kind:
            return one()
        return [one() for _ in range(int(self.rng.integers(90 if self.once(40) else 7)))]

    def shape(self, tensor) -> list[int]:
        shape = []
        for axis in filter(None, tensor.dims[1:-1].replace(" ", "").split(",")):
            factor, _, symbol = axis.rpartition("*")
            if axis.endswith("..."):
                rank = int(self.rng.integers(70)) if self.once(60) else int(self.rng.integers(4))
                usual = [1 if rank > 8 else self.dim() for _ in range(rank)]
                shape += self.packs.setdefault(axis, usual)
            elif axis.isdigit():
                shape.append(int(axis))
            else:
                shape.append(int(factor or 1) * self.dims.setdefault(symbol, self.dim()))
        if shape and self.once(80):
            shape[int(self.rng.integers(len(shape)))] = self.dim()
        return shape

    def array(self, tensor, shape: list[int]) -> np.ndarray:
        dtype = {"T": self.real, "I": self.whole}.get(tensor.type) or TYPES[tensor.type]
        shape = shape[:64]  # NumPy has no more dims, and no array whose other dims overflow
        while (
            np.prod([float(d) for d in shape]) > MOST_ELEMENTS
            or np.prod([float(d or 1) for d in shape]) > 2.0**58
        ):
            shape[int(np.argmax(shape))] //= 2
        if np.issubdtype(dtype, np.floating):
            values = self.rng.normal(size=shape).astype(dtype)
            values[self.rng.random(shape) < 0.002] = self.rng.choice(HOSTILE_FLOATS)
            return values
        low, high = ((-4, 5), (0, 2), (0, 9), (0, 4))[self.small]
        values = self.rng.integers(low, high, size=shape).astype(dtype)
        if dtype == np.int64 and self.small == 0:
            hostile = self.rng.choice(np.array(HOSTILE_NUMBERS, np.int64), size=shape)
            values = np.where(self.rng.random(shape) < 0.05, hostile, values)
        return values

    def call(self):
        contract = self.contract
        inputs = {
            t.name: self.array(t, self.shape(t))
            for t in contract.inputs
            if not (t.optional and self.rng.integers(2)) and not self.once(200)
        }
        attributes = {
            a.name: self.attribute(a) for a in contract.attributes if self.rng.integers(2)
        }
        attributes = {k: v for k, v in attributes.items() if v != []}
        outputs = [
            t.name
            for t in contract.outputs
            if not t.optional or self.rng.integers(3) or self.once(9)
        ]
        return inputs, attributes, outputs


def obeyed(contract, inputs: dict, message: str) -> bool:
    """Give the input that the operator complains of the shape that it expects; False when it does not say."""
    told = re.search(r"input (\w+) has (shape|spatial dims) \S.*?expected \[([\d, ]*)\]", message)
    if not told or told[1] not in inputs:
        return False
    shape = [int(d) for d in told[3].split(",") if d.strip()]
    old = inputs[told[1]]
    shape = [*old.shape[:2], *shape] if told[2] == "spatial dims" else shape
    if shape == list(old.shape) or np.prod([float(d) for d in shape]) > MOST_ELEMENTS:
        return False
    inputs[told[1]] = np.resize(old, shape) if old.size else np.zeros(shape, old.dtype)
    return True


def run_one(options, contract, rng) -> str:
    """Make a model, run it twice; what came of it."""
    import onnxruntime
    from ort_models import node_model

    inputs, attributes, outputs = Maker(contract, rng).call()
    for _ in range(4):
        model = node_model(contract, inputs, attributes, outputs).SerializeToString()
        try:
            session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
            first, second = session.run(None, inputs), session.run(None, inputs)
        except Exception as error:  # the runtime's classes have no base of their own
            if not str(error).strip():
                raise
            if obeyed(contract, inputs, str(error)):
                continue
            return "refused"
        same = all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
        return "computed" if same else "differs"
    return "refused"


def run_batch(library: str, seed: int, first: int, count: int) -> None:
    """In a child: models [first, first + count), a line each before and after."""
    import onnxruntime

    from onnxgrad.contracts import contracts

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_PER_BATCH, SECONDS_PER_BATCH))
    known = list(contracts().values())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = options.enable_mem_pattern = (
        False  # a block of its own for each tensor
    )
    options.register_custom_ops_library(library)
    for number in range(first, first + count):
        contract = known[number % len(known)]
        print(json.dumps([number, contract.name]), flush=True)
        outcome = run_one(options, contract, np.random.default_rng([seed, number]))
        print(json.dumps([number, outcome]), flush=True)


def sanitizer_of(library: str) -> dict[str, str]:
    """What a child needs in its environment to load a library that is compiled with AddressSanitizer."""
    needed = subprocess.run(["ldd", library], capture_output=True, text=True).stdout
    runtime = re.search(
        r"\S*(?:libasan|libclang_rt\.asan)\S*\.so\S* => (\S+)|(\S*libclang_rt\.asan\S+)", needed
    )
    if not runtime:
        return {}
    path = runtime[1] or runtime[2]
    if path == "not":  # found by clang only
        path = subprocess.check_output(
            ["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], text=True
        ).strip()
    options = "detect_leaks=0:allocator_may_return_null=1:handle_segv=1:max_allocation_size_mb=4096"
    folder = os.path.dirname(path)
    return {"LD_PRELOAD": path, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1",
            "LD_LIBRARY_PATH": folder, "PYTHONMALLOC": "malloc"}  # fmt: skip


def run_child(arguments, first: int, count: int):
    command = [sys.executable, __file__, "--library", arguments.library, "--seed", str(arguments.seed),
               "--batch", str(first), str(count), *(["--exit"] if arguments.exit else [])]  # fmt: skip
    environment = {**os.environ, **sanitizer_of(arguments.library)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=20 * SECONDS_PER_BATCH
        )
        return done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(), "no answer in time", -1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--library", required=True, help="libonnxgrad_ops.so, compiled with sanitizers"
    )
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--per-child", type=int, default=BATCH, help="models of one process")
    parser.add_argument(
        "--exit",
        action="store_true",
        help="let processes end as programs do, to see what their exit does",
    )
    parser.add_argument("--batch", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch:
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
        run_batch(arguments.library, arguments.seed, *arguments.batch)
        if arguments.exit:
            return 0
        os._exit(0)  # onnxruntime's own threads may still read what exit frees
    counts, findings, started, first = {}, 0, time.monotonic(), 0
    while first < arguments.models and time.monotonic() - started < arguments.seconds:
        count = min(arguments.per_child, arguments.models - first)
        out, err, code = run_child(arguments, first, count)
        lines = [json.loads(line) for line in out.splitlines()]
        for _, outcome in lines[1::2]:
            counts[outcome] = counts.get(outcome, 0) + 1
        first += count
        if code != 0:
            findings += 1
            number, name = lines[-1] if lines else (first, "?")
            print(
                f"model {number} of seed {arguments.seed} ({name}) ended its process ({code}):\n{err[-3000:]}"
            )
            first = number + 1
    print(f"sessions, seed {arguments.seed}: {sum(counts.values())} models: {counts}, {findings} findings, "
          f"{time.monotonic() - started:.0f} s")  # fmt: skip
    return 1 if findings or counts.get("differs") else 0


if __name__ == "__main__":
    sys.exit(main())
