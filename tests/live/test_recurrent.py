"""LSTM and GRU against PyTorch's own modules and autograd, in double: states and every gradient."""

import numpy as np
import pytest

from onnxgrad import kernels

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.live

# PyTorch's gates are i f g o (ONNX: i o f c) and r z n (ONNX: z r h). Each list leads from ONNX's to PyTorch's.
ORDER = {"lstm": [0, 2, 3, 1], "gru": [1, 0, 2]}
MODULE = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
# PyTorch's GRU multiplies by the reset gate after the product.
ATTRIBUTES = {"lstm": {}, "gru": {"linear_before_reset": 1}}
STATES = {"lstm": ("H0", "C0"), "gru": ("H0",)}
KEPT = {"lstm": ("HAll", "CAll", "IOFC"), "gru": ("HAll", "ZRH")}

# steps, rows, inputs, hidden units, directions, lengths
SHAPES = [
    (1, 1, 1, 1, 1, None),
    (7, 3, 5, 17, 1, None),
    (16, 1, 64, 64, 1, None),
    (33, 12, 20, 40, 1, None),
    (6, 4, 9, 33, 2, None),
    (40, 9, 6, 24, 2, None),
    (9, 5, 4, 8, 1, (3, 9, 1, 6, 9)),
    (9, 5, 4, 20, 2, (3, 9, 1, 6, 9)),
    (30, 20, 8, 12, 2, tuple(1 + 7 * k % 30 for k in range(20))),
]


def reordered(array, op):
    """Gate rows, or gate elements, in PyTorch's order; the same function for weights and for their gradients."""
    parts = np.split(array, len(ORDER[op]))
    return np.concatenate([parts[i] for i in ORDER[op]])


def draw(op, S, N, I, H, D):  # noqa: E741
    rng = np.random.default_rng(11)
    G = len(ORDER[op]) * H
    shapes = dict(X=(S, N, I), W=(D, G, I), R=(D, G, H), B=(D, 2 * G))
    shapes.update(dict.fromkeys(STATES[op], (D, N, H)))
    return {name: rng.normal(0, 0.4, shape) for name, shape in shapes.items()}


def module_with(op, arrays):
    D, _, I = arrays["W"].shape  # noqa: E741
    module = MODULE[op](I, arrays["R"].shape[2], bidirectional=D == 2).double()
    with torch.no_grad():
        for d in range(D):
            biases = dict(zip(("bias_ih", "bias_hh"), np.split(arrays["B"][d], 2), strict=True))
            weights = dict(weight_ih=arrays["W"][d], weight_hh=arrays["R"][d], **biases)
            for name, array in weights.items():
                parameter = getattr(module, f"{name}_l0{'_reverse' if d else ''}")
                parameter.copy_(torch.tensor(reordered(array, op)))
    return module


def run_torch(op, arrays, lengths):
    """Outputs [S, N, D·H], final states, and the leaves whose gradients are compared."""
    module = module_with(op, arrays)
    leaves = {n: torch.tensor(arrays[n], requires_grad=True) for n in ("X", *STATES[op])}
    x = leaves["X"]
    if lengths:
        x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    states = [leaves[n] for n in STATES[op]]
    y, final = module(x, tuple(states) if op == "lstm" else states[0])
    if lengths:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=arrays["X"].shape[0])
    return module, leaves, y, final if op == "lstm" else (final,)


def gradients_of(op, module, leaves, D):
    """PyTorch's gradients under ONNX's names; those of the weights still in PyTorch's order."""
    grads = {f"d{n}": leaf.grad.numpy() for n, leaf in leaves.items()}

    def stacked(name):
        return [
            getattr(module, f"{name}_l0{'_reverse' if d else ''}").grad.numpy() for d in range(D)
        ]

    grads["dW"], grads["dR"] = np.stack(stacked("weight_ih")), np.stack(stacked("weight_hh"))
    pairs = zip(stacked("bias_ih"), stacked("bias_hh"), strict=True)
    grads["dB"] = np.stack([np.concatenate(pair) for pair in pairs])
    return grads


def in_torch_order(op, name, array):
    if name in ("dW", "dR"):
        return np.stack([reordered(a, op) for a in array])
    if name == "dB":
        halves = [np.split(a, 2) for a in array]
        return np.stack([np.concatenate([reordered(h, op) for h in pair]) for pair in halves])
    return array


@pytest.mark.parametrize("op", ["lstm", "gru"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states_and_gradients_are_those_of_pytorch(op, shape):
    S, N, I, H, D, lengths = shape  # noqa: E741
    arrays = draw(op, S, N, I, H, D)
    attributes = {"direction": "bidirectional" if D == 2 else "forward", **ATTRIBUTES[op]}
    more = {"SL": np.array(lengths, np.int32)} if lengths else {}
    ours = getattr(kernels, f"{op}_training")(**arrays, **more, **attributes)

    module, leaves, y, final = run_torch(op, arrays, lengths)
    close = dict(rtol=1e-10, atol=1e-12)
    theirs = y.detach().numpy().reshape(S, N, D, H).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(ours.HAll, theirs, **close)
    for name, state in zip(("Ht", "Ct"), final, strict=False):
        np.testing.assert_allclose(getattr(ours, name), state.detach().numpy(), **close)

    rng = np.random.default_rng(12)
    cotangents = {"grad_HAll": rng.normal(size=ours.HAll.shape)}
    cotangents |= {
        f"grad_{n}": rng.normal(size=s.shape) for n, s in zip(("Ht", "Ct"), final, strict=False)
    }
    flat = cotangents["grad_HAll"].transpose(0, 2, 1, 3).reshape(S, N, D * H)
    torch.autograd.backward(
        [y, *final],
        [torch.tensor(flat), *(torch.tensor(c) for n, c in cotangents.items() if n != "grad_HAll")],
    )
    inputs = {k: v for k, v in arrays.items() if not (op == "lstm" and k == "B")}
    kept = {n: getattr(ours, n) for n in KEPT[op]}
    grads = getattr(kernels, f"{op}_grad")(**inputs, **more, **kept, **cotangents, **attributes)
    for name, expected in gradients_of(op, module, leaves, D).items():
        got = in_torch_order(op, name, getattr(grads, name))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11, err_msg=name)
