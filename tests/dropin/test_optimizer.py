"""onnxgrad.api: optimizers, learning rates, and nominal checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from dropin.helpers import LABELS, NAMES, X, gradients, make, steps

from onnxgrad import onnxblock
from onnxgrad.api import LinearLRScheduler


@pytest.fixture
def files(tmp_path):
    return make(tmp_path)


def adamw(w, g, m, v, t, lr, betas, eps, decay, correct):
    """As Hugging Face wrote it, in float64."""
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    rate = lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) if correct else lr
    w = w - rate * m / (np.sqrt(v) + eps)
    return w - lr * decay * w, m, v


@pytest.mark.parametrize("correct", [True, False], ids=["corrected", "not corrected"])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adamw(tmp_path, correct, decay):
    betas, eps, lr = (0.8, 0.95), 1e-2, 0.1
    block = onnxblock.optim.AdamW(correct, betas, eps, decay)
    files = make(tmp_path, optimizer=block)
    state = files.state()
    module = files.module(state)
    optimizer = files.optimizer(module)
    optimizer.set_learning_rate(lr)
    w = state.parameters["fc2.bias"].data.astype(np.float64)
    m = v = np.zeros(5)
    for t in range(1, 6):
        module(X, LABELS)
        g = state.parameters["fc2.bias"].grad.astype(np.float64)
        optimizer.step()
        module.lazy_reset_grad()
        w, m, v = adamw(w, g, m, v, t, lr, betas, eps, decay, correct)
        np.testing.assert_allclose(state.parameters["fc2.bias"].data, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("limit", [0.01, 100.0])
def test_sgd_with_gradients_of_limited_norm(tmp_path, limit):
    block = onnxblock.optim.SGD(clip_grad=onnxblock.optim.ClipGradNorm(limit))
    files = make(tmp_path, optimizer=block)
    state = files.state()
    module = files.module(state)
    optimizer = files.optimizer(module)
    optimizer.set_learning_rate(0.5)
    module(X, LABELS)
    w, g = {n: state.parameters[n].data for n in NAMES}, gradients(state)
    norm = np.sqrt(sum(np.square(x.astype(np.float64)).sum() for x in g.values()))
    scale = min(1.0, limit / (norm + 1e-6))
    optimizer.step()
    for name in NAMES:
        expected = w[name] - 0.5 * scale * g[name]
        np.testing.assert_allclose(state.parameters[name].data, expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(state.parameters[name].grad, scale * g[name], rtol=1e-6)


def test_the_learning_rate(files):
    optimizer = files.optimizer(files.module())
    assert optimizer.get_learning_rate() == pytest.approx(1e-3)
    optimizer.set_learning_rate(0.5)
    assert optimizer.get_learning_rate() == 0.5


def test_a_linear_schedule_warms_up_and_falls(files):
    module = files.module()
    optimizer = files.optimizer(module)
    schedule = LinearLRScheduler(optimizer, 2, 6, 0.1)
    rates = [optimizer.get_learning_rate()]
    for _ in range(7):
        module(X, LABELS)
        optimizer.step()
        schedule.step()
        rates.append(optimizer.get_learning_rate())
    expected = [0, 0.05, 0.1, 0.075, 0.05, 0.025, 0, 0]
    assert rates == pytest.approx(expected, abs=1e-9)


# ---- nominal checkpoints


def test_a_nominal_checkpoint_is_completed_by_a_buffer(tmp_path):
    files = make(tmp_path, nominal_checkpoint=True)
    complete = files.module()
    state = files.state("nominal_checkpoint")
    assert sorted(NAMES) == sorted(n for n in NAMES if n in state.parameters)
    module = files.module(state)
    optimizer = files.optimizer(module)
    assert module.get_parameters_size() == complete.get_parameters_size()
    for action in (
        lambda: module(X, LABELS),
        lambda: module.get_contiguous_parameters(),
        optimizer.step,
    ):
        with pytest.raises(RuntimeError, match=r"Please load the model parameters first\."):
            action()
    with pytest.raises(RuntimeError, match="Please load the parameter states first"):
        state.parameters["fc1.bias"]
    with pytest.raises(RuntimeError, match="Please load all the parameter states first"):
        state.parameters["fc1.bias"] = np.zeros(12, np.float32)
    buffer = complete.get_contiguous_parameters()
    with pytest.raises(RuntimeError, match="trainable_only=False"):
        module.copy_buffer_to_parameters(buffer)
    other = files.module(state)  # shares the memory
    module.copy_buffer_to_parameters(buffer, trainable_only=False)
    assert other(X, LABELS) == complete(X, LABELS)
    complete.lazy_reset_grad()
    assert steps(module, optimizer, 3) == steps(complete, files.optimizer(complete), 3)
