"""What every worker does: read one JSON request per line, answer with one JSON line.

{"prepare": folder, "threads": n}  loads model.onnx, inputs.npz and line.json; answers {"ok": true} or {"error": …}
{"time": seconds}                  runs the prepared call for about that long; answers {"times": [seconds, …]}
                                   with "clock": "cpu" in processor time, which other processes do not disturb
{"result": path}                   saves the outputs of one call as .npz, to be compared
"""

from __future__ import annotations

import json
import sys
import time
import traceback

import numpy as np

MOST_SAMPLES = 200
# A long call is repeated beyond its time: the first after a pause may find both threads woken on one core.
LEAST_SAMPLES, LONGEST_WAIT = 5, 0.25  # seconds


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins on a cache line, as tensors inside ONNX Runtime and PyTorch do."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def load_inputs(folder: str) -> dict[str, np.ndarray]:
    """The inputs of the benchmark's line by name."""
    with np.load(f"{folder}/inputs.npz") as data:
        return {name: aligned(data[name]) for name in data.files}


def steps_of_torch(forward, target, optimizer):
    """A training step by PyTorch's cross entropy, and its first losses."""
    from torch.nn import functional

    losses = []

    def step():
        loss = functional.cross_entropy(forward(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    return step, lambda: {"loss": np.array(losses[:3])}


def steps_of_trainer(trainer, x, y):
    """A training step of onnxgrad, and its first losses."""
    losses = []

    def step():
        losses.append(trainer.step(x, y)["loss"])

    return step, lambda: {"loss": np.array(losses[:3] or [trainer.step(x, y)["loss"]])}


def measure(call, seconds: float, clock=time.perf_counter) -> list[float]:
    """Times of single calls; short calls are timed in groups, so that the clock does not count."""
    group, started = 1, clock()
    while True:
        begin = clock()
        for _ in range(group):
            call()
        spent = clock() - begin
        if spent > 2e-4 or group >= 4096:
            break
        group *= 4
    times = [spent / group]
    while len(times) < MOST_SAMPLES:
        limit = seconds if len(times) >= LEAST_SAMPLES else max(seconds, LONGEST_WAIT)
        if clock() - started >= limit:
            break
        begin = clock()
        for _ in range(group):
            call()
        times.append((clock() - begin) / group)
    return times


def serve(prepare) -> None:
    """`prepare(folder, threads)` returns (call, outputs): outputs() gives the results of a call by name."""
    call = outputs = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                call, outputs = prepare(request["prepare"], request["threads"])
                call()
                answer = {"ok": True}
            elif "time" in request:
                clock = time.process_time if request.get("clock") == "cpu" else time.perf_counter
                answer = {"times": measure(call, request["time"], clock)}
            else:
                np.savez(request["result"], **outputs())
                answer = {"ok": True}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
