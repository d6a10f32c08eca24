"""What onnxruntime-training-cpu 1.19.2 wrote and computed (tests/golden/dropin), and the same with onnxgrad."""

from __future__ import annotations

import numpy as np
from dropin import nets
from places import GOLDEN as ALL_GOLDENS
from places import TESTS

from onnxgrad.api import CheckpointState, Module, Optimizer
from onnxgrad.dropin.old import checkpoint

HERE = TESTS / "dropin"
GOLDEN = ALL_GOLDENS / "dropin"
RATES = {"AdamW": 1e-3, "SGD": 0.02}


def program() -> dict:
    """The program for the old package, with one word changed."""
    text = (HERE / "program.py").read_text()
    assert text.count("onnxruntime.training") >= 2
    space: dict = {"__name__": "program"}
    exec(compile(text.replace("onnxruntime.training", "onnxgrad"), "program.py", "exec"), space)
    return space


def frozen(name: str) -> list[str]:
    return nets.NETS[name]()[0].frozen


def batches(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    data = np.load(GOLDEN / name / "batches.npz")
    return [(data[f"x{i}"], data[f"y{i}"]) for i in range(nets.BATCHES)]


def expected(name: str, optimizer: str) -> np.ndarray:
    return np.load(GOLDEN / name / optimizer / "losses.npy")


def train(
    name: str, optimizer: str, start: str, steps: range
) -> tuple[np.ndarray, CheckpointState]:
    """Continue from an old checkpoint with the old training and optimizer model."""
    folder = GOLDEN / name
    state = CheckpointState.load_checkpoint(folder / start)
    module = Module(folder / "training_model.onnx", state)
    rule = Optimizer(folder / optimizer / "optimizer_model.onnx", module)
    rule.set_learning_rate(RATES[optimizer])
    losses = []
    for step in steps:
        losses.append(module(*batches(name)[step % nets.BATCHES]))
        rule.step()
        module.lazy_reset_grad()
    return np.array(losses), state


def flat(found: checkpoint.Checkpoint) -> dict:
    def content(arrays):
        return {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()}

    group = found.optimizer
    return {
        "trained": content(found.trainable),
        "frozen": content(found.frozen),
        "properties": found.properties,
        "optimizer": group
        and (
            group.step,
            group.initial_learning_rate,
            {n: content(m) for n, m in group.moments.items()},
        ),
    }
