"""Layers of torch_graph.py: convolutions, pools, resizing, recurrent layers, picking and quantising."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F


class Missing(Exception):
    """The table has no such operator, or not this form of it."""


def ints(value: Any) -> list[int] | None:
    if value is None or isinstance(value, int):
        return None if value is None else [value]
    return [int(i) for i in (value.reshape(-1).tolist() if torch.is_tensor(value) else value)]


# ---- windows


def _same(x, kernel, a, rank):
    """The padding of auto_pad, as amounts before and after each spatial axis."""
    strides, dilations = a.get("strides", [1] * rank), a.get("dilations", [1] * rank)
    auto = a.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = a.get("pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        return strides, dilations, list(zip(pads[:rank], pads[rank:], strict=True))
    pairs = []
    for i in range(rank):
        size = x.shape[2 + i]
        span = (kernel[i] - 1) * dilations[i] + 1
        total = max((math.ceil(size / strides[i]) - 1) * strides[i] + span - size, 0)
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return strides, dilations, pairs


def _padded(x, pairs, value=0.0):
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], "constant", value)


def _conv(g, a, x, w, b=None):
    rank = x.dim() - 2
    strides, dilations, pairs = _same(x, w.shape[2:], a, rank)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(_padded(x, pairs), w, b, strides, 0, dilations, a.get("group", 1))


def _conv_transpose(g, a, x, w, b=None):
    rank = x.dim() - 2
    if "output_shape" in a or a.get("auto_pad", "NOTSET") != "NOTSET":
        raise Missing("ConvTranspose with output_shape or auto_pad")
    pads = a.get("pads", [0] * 2 * rank)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    ones = [1] * rank
    y = function(x, w, b, a.get("strides", ones), 0, a.get("output_padding", [0] * rank),
                 a.get("group", 1), a.get("dilations", ones))  # fmt: skip
    for i in range(rank):
        y = y.narrow(2 + i, pads[i], y.shape[2 + i] - pads[i] - pads[i + rank])
    return y


def _windows(x, kernel, a, fill):
    """[N, C, out..., kernel...] views of the padded input; ceil_mode pads what is missing."""
    rank = len(kernel)
    strides, dilations, pairs = _same(x, kernel, a, rank)
    for i in range(rank) if a.get("ceil_mode") else ():
        span = (kernel[i] - 1) * dilations[i] + 1
        size = x.shape[2 + i] + sum(pairs[i])
        out = math.ceil((size - span) / strides[i]) + 1
        if (out - 1) * strides[i] >= x.shape[2 + i] + pairs[i][0]:
            out -= 1
        pairs[i] = (pairs[i][0], pairs[i][1] + max((out - 1) * strides[i] + span - size, 0))
    x = _padded(x, pairs, fill)
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        x = x.unfold(2 + i, span, strides[i])[..., :: dilations[i]]
    return x


def _max_pool(g, a, x):
    kernel = a["kernel_shape"]
    found = _windows(x, kernel, a, -math.inf).flatten(-len(kernel)).max(-1)
    if g.outputs == 1:
        return found.values
    if a.get("storage_order"):
        raise Missing("MaxPool with indices by columns")
    flat = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
    places = _windows(flat, kernel, a, -1.0).flatten(-len(kernel))
    return found.values, places.gather(-1, found.indices[..., None])[..., 0].long()


def _average_pool(g, a, x):
    kernel = a["kernel_shape"]
    tail = tuple(range(-len(kernel), 0))
    total = _windows(x, kernel, a, 0.0).sum(tail)
    if a.get("count_include_pad"):
        if a.get("ceil_mode"):
            raise Missing("AveragePool with ceil_mode that counts its padding")
        return total / math.prod(kernel)
    return total / _windows(torch.ones_like(x), kernel, a, 0.0).sum(tail)


def _resize(g, a, x, roi=None, scales=None, sizes=None):
    mode, where = a.get("mode", "nearest"), a.get("coordinate_transformation_mode", "half_pixel")
    if g.opset < 11:
        where, scales = "asymmetric", roi
    if sizes is not None:
        target = ints(sizes)
    else:
        target = [math.floor(n * float(s)) for n, s in zip(x.shape, scales, strict=True)]
    given = None if sizes is not None else [float(s) for s in scales]
    for axis, size in enumerate(target):
        if size != x.shape[axis]:
            scale = size / x.shape[axis] if given is None else given[axis]
            x = _resize_axis(x, axis, size, scale, mode, where, a.get("nearest_mode"), g.opset)
    return x


def _resize_axis(x, axis, size, scale, mode, where, rounding, opset):
    """Along one axis: every mode of ONNX that is nearest or linear is separable."""
    n, i = x.shape[axis], torch.arange(size, dtype=torch.float64)
    at = {
        "half_pixel": lambda: (i + 0.5) / scale - 0.5,
        "pytorch_half_pixel": lambda: (i + 0.5) / scale - 0.5 if size > 1 else i * 0,
        "asymmetric": lambda: i / scale,
        "align_corners": lambda: i * (n - 1) / max(size - 1, 1),
    }[where]()
    if mode == "nearest":
        rounded = {
            "floor": torch.floor, "ceil": torch.ceil,
            "round_prefer_ceil": lambda t: torch.floor(t + 0.5),
        }.get(rounding or ("floor" if opset < 11 else ""), lambda t: torch.ceil(t - 0.5))(at)  # fmt: skip
        return x.index_select(axis, rounded.clamp(0, n - 1).long())
    if mode != "linear":
        raise Missing(f"Resize by {mode}")
    at = at.clamp(0, n - 1)
    low = at.floor().clamp(max=max(n - 2, 0)).long()
    part = (at - low).to(x.dtype).reshape([-1] + [1] * (x.dim() - 1 - axis))
    high = (low + 1).clamp(max=n - 1)
    return x.index_select(axis, low) * (1 - part) + x.index_select(axis, high) * part


# ---- layers


def _batch_norm(g, a, x, scale, b, mean, var):
    if a.get("training_mode"):
        return F.batch_norm(x, None, None, scale, b, True, 0.0, a.get("epsilon", 1e-5))
    return F.batch_norm(x, mean, var, scale, b, False, 0.0, a.get("epsilon", 1e-5))


def _layer_norm(g, a, x, scale, b=None):
    axis = a.get("axis", -1) % x.dim()
    return F.layer_norm(x, x.shape[axis:], scale, b, a.get("epsilon", 1e-5))


def _gemm(g, a, x, w, c=None):
    x, w = x.T if a.get("transA") else x, w.T if a.get("transB") else w
    y = a.get("alpha", 1.0) * (x @ w)
    return y if c is None else y + a.get("beta", 1.0) * c


def _directions(a, count, x, cell):
    """Run `cell(direction, x)` for each direction; Y [S, D, N, H] and the last states."""
    kind = a.get("direction", "forward")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    parts = []
    for d in range(count):
        flip = kind == "reverse" or d == 1
        y, *last = cell(d, x.flip(0) if flip else x)
        parts.append((y.flip(0) if flip else y, *last))
    columns = list(zip(*parts, strict=True))
    return (torch.stack(columns[0], 1), *(torch.stack(c) for c in columns[1:]))


def _expect_plain(a, lengths):
    usual = [["Sigmoid", "Tanh", "Tanh"], ["Sigmoid", "Tanh"]]
    named = [n.decode() for n in a.get("activations", [])]
    plain = any(named == (u * 2)[: len(named)] and len(named) % len(u) == 0 for u in usual)
    odd = [n for n in ("clip", "input_forget", "layout") if a.get(n)]
    odd += ["activations"] if not plain else []
    if odd or (lengths is not None and len(set(lengths.tolist())) > 1):
        raise Missing(f"a recurrent layer with {', '.join(odd) or 'several lengths'}")


def _lstm(g, a, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None):
    """Gates i o f c."""
    _expect_plain(a, lengths)
    hidden = r.shape[2]

    def cell(d, x):
        zero = x.new_zeros(x.shape[1], hidden)
        h, c = (zero if v is None else v[d] for v in (h0, c0))
        bias = 0 if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :]
        rows = []
        for t in range(x.shape[0]):
            i, o, f, n = (x[t] @ w[d].T + h @ r[d].T + bias).split(hidden, 1)
            if p is not None:
                pi, po, pf = p[d].split(hidden)
                i, f = i + pi * c, f + pf * c
            c = f.sigmoid() * c + i.sigmoid() * n.tanh()
            h = (o if p is None else o + po * c).sigmoid() * c.tanh()
            rows.append(h)
        return torch.stack(rows), h, c

    return _directions(a, w.shape[0], x, cell)


def _gru(g, a, x, w, r, b=None, lengths=None, h0=None):
    """Gates z r h."""
    _expect_plain({**a, "layout": a.get("layout")}, lengths)
    hidden = r.shape[2]

    def cell(d, x):
        h = x.new_zeros(x.shape[1], hidden) if h0 is None else h0[d]
        wb, rb = (x.new_zeros(2, 3 * hidden) if b is None else b[d].reshape(2, -1)).unbind()
        rows = []
        for t in range(x.shape[0]):
            xz, xr, xh = (x[t] @ w[d].T + wb).split(hidden, 1)
            rz, rr, rh = r[d].split(hidden)
            bz, br, bh = rb.split(hidden)
            z, reset = (xz + h @ rz.T + bz).sigmoid(), (xr + h @ rr.T + br).sigmoid()
            if a.get("linear_before_reset"):
                n = (xh + reset * (h @ rh.T + bh)).tanh()
            else:
                n = (xh + (reset * h) @ rh.T + bh).tanh()
            h = (1 - z) * n + z * h
            rows.append(h)
        return torch.stack(rows), h

    return _directions(a, w.shape[0], x, cell)


def _reverse_sequence(g, a, x, lengths):
    time, batch = a.get("time_axis", 0), a.get("batch_axis", 1)
    x = x.movedim((batch, time), (0, 1))
    rows = [
        torch.cat([row[: int(n)].flip(0), row[int(n) :]]) for row, n in zip(x, lengths, strict=True)
    ]
    return torch.stack(rows).movedim((0, 1), (batch, time))


def _top_k(g, a, x, k):
    return tuple(torch.topk(x, int(k), a.get("axis", -1), bool(a.get("largest", 1))))


def _scatter_elements(g, a, x, indices, updates):
    axis, how = a.get("axis", 0), a.get("reduction", "none")
    indices = torch.where(indices < 0, indices + x.shape[axis], indices).long()
    if how == "none":
        return x.scatter(axis, indices, updates)
    if how != "add":
        raise Missing(f"ScatterElements with {how}")
    return x.scatter_add(axis, indices, updates)


def _quantize(g, a, x, scale, zero=None):
    """Straight through: the integers stay floats that carry the gradient, within the range."""
    axis = a.get("axis", 1)
    low, high = (0, 255) if zero is None or zero.dtype == torch.uint8 else (-128, 127)
    scale, zero = _along(scale, x, axis), 0 if zero is None else _along(zero.to(x.dtype), x, axis)
    q = x / scale
    return (q + (q.round() - q).detach() + zero).clamp(low, high)


def _dequantize(g, a, x, scale, zero=None):
    axis, x = a.get("axis", 1), x.to(scale.dtype)
    zero = 0 if zero is None else _along(zero.to(scale.dtype), x, axis)
    return (x - zero) * _along(scale, x, axis)


def _along(v, x, axis):
    if v.dim() == 0 or v.numel() == 1:
        return v.reshape(())
    return v.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])


LAYERS = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": _dequantize,
    "GRU": _gru,
    "Gemm": _gemm,
    "LSTM": _lstm,
    "LayerNormalization": _layer_norm,
    "MaxPool": _max_pool,
    "QuantizeLinear": _quantize,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _scatter_elements,
    "TopK": _top_k,
    "Upsample": lambda g, a, x, scales=None: _resize(g, a, x, a.get("scales", scales)),
}
