"""Operators of torch_graph.py that pick, place and count elements, and those that few models have."""

from __future__ import annotations

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch_layers import Missing, ints


def _eye_like(g, a, x):
    rows, columns = x.shape
    like = torch.eye(max(rows, columns) + abs(a.get("k", 0)), dtype=g.dtype)
    k = a.get("k", 0)
    eye = like.roll(k, 1)[:rows, :columns] if k else like[:rows, :columns]
    kind = a.get("dtype")
    return eye if kind is None or kind in (1, 10, 11, 16) else eye.to(_kind(kind))


def _kind(number: int) -> torch.dtype:
    return torch.from_numpy(
        np.zeros(1, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    ).dtype


def _positive(indices, size):
    return torch.where(indices < 0, indices + size, indices).long()


def _gather_elements(g, a, x, indices):
    axis = a.get("axis", 0)
    return x.gather(axis, _positive(indices, x.shape[axis]))


def _tuples(x, indices, batch=0):
    """One index for each axis that the last dim of `indices` names, batch dims first."""
    last = indices.shape[-1]
    picked = [_positive(indices[..., k], x.shape[batch + k]) for k in range(last)]
    ahead = [
        torch.arange(x.shape[d]).reshape([-1 if i == d else 1 for i in range(indices.dim() - 1)])
        for d in range(batch)
    ]
    return tuple(ahead + picked)


def _gather_nd(g, a, x, indices):
    return x[_tuples(x, indices, a.get("batch_dims", 0))]


def _scatter_nd(g, a, x, indices, updates):
    how = a.get("reduction", "none")
    if how not in ("none", "add"):
        raise Missing(f"ScatterND with {how}")
    return x.index_put(_tuples(x, indices), updates, accumulate=how == "add")


def _one_hot(g, a, indices, depth, values):
    depth, axis = int(depth), a.get("axis", -1)
    at = _positive(indices.to(torch.int64), depth)
    hot = (at[..., None] == torch.arange(depth)).to(values.dtype)
    y = values[0] + (values[1] - values[0]) * hot
    return y.movedim(-1, axis if axis >= 0 else y.dim() + axis)


def _cum_sum(g, a, x, axis):
    axis = int(axis)
    x = x.flip(axis) if a.get("reverse") else x
    y = x.cumsum(axis)
    y = y - x if a.get("exclusive") else y
    return y.flip(axis) if a.get("reverse") else y


def _trilu(g, a, x, k=None):
    k = 0 if k is None else int(k)
    return x.triu(k) if a.get("upper", 1) else x.tril(k)


def _norm_of_channels(g, a, x, scale, b):
    return F.instance_norm(x, None, None, scale, b, True, 0.0, a.get("epsilon", 1e-5))


def _group_norm(g, a, x, scale, b):
    groups = a["num_groups"]
    if len(scale) == groups:  # opset 18: a scale for each group
        scale, b = (v.repeat_interleave(x.shape[1] // groups) for v in (scale, b))
    return F.group_norm(x, groups, scale, b, a.get("epsilon", 1e-5))


def _depth_to_space(g, a, x):
    n, c, h, w = x.shape
    s = a["blocksize"]
    if a.get("mode", "DCR") == "CRD":
        x = x.reshape(n, c // s**2, s, s, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        x = x.reshape(n, s, s, c // s**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // s**2, h * s, w * s)


def _space_to_depth(g, a, x):
    n, c, h, w = x.shape
    s = a["blocksize"]
    x = x.reshape(n, c, h // s, s, w // s, s).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * s**2, h // s, w // s)


def _gelu(g, a, x):
    return F.gelu(x, approximate=a.get("approximate", "none"))


def _lp_norm(g, a, x):
    axis = a.get("axis", -1)
    size = x.norm(a.get("p", 2), axis, keepdim=True)
    return torch.where(size == 0, torch.zeros_like(x), x / size)


def _celu(g, a, x):
    return F.celu(x, a.get("alpha", 1.0))


def _arg_min(g, a, x):
    return x.argmin(a.get("axis", 0), bool(a.get("keepdims", 1)))


def _compress(g, a, x, condition):
    if "axis" not in a:
        x = x.reshape(-1)
    axis = a.get("axis", 0)
    return x.index_select(axis, condition.nonzero().reshape(-1)[: x.shape[axis]])


def _pick_sum(function):
    """Reductions that torch_graph's own family lacks; axes as an attribute or an input."""

    def apply(g, a, x, *given):
        axes = ints(given[0]) if given and given[0] is not None else a.get("axes")
        axes = tuple(range(x.dim())) if not axes else tuple(axes)
        return function(x, axes, bool(a.get("keepdims", 1)))

    return apply


MOVES = {
    "ArgMin": _arg_min, "Atan": lambda g, a, x: torch.atan(x), "Celu": _celu, "Compress": _compress,
    "CumSum": _cum_sum, "DepthToSpace": _depth_to_space, "EyeLike": _eye_like,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "Gelu": _gelu,
    "GroupNormalization": _group_norm, "InstanceNormalization": _norm_of_channels,
    "IsInf": lambda g, a, x: torch.isinf(x), "IsNaN": lambda g, a, x: torch.isnan(x),
    "LpNormalization": _lp_norm, "Mean": lambda g, a, *x: sum(x[1:], x[0]) / len(x),
    "Mish": lambda g, a, x: F.mish(x), "OneHot": _one_hot,
    "ReduceL1": _pick_sum(lambda x, i, k: x.abs().sum(i, k)),
    "ReduceLogSum": _pick_sum(lambda x, i, k: x.sum(i, k).log()),
    "ReduceLogSumExp": _pick_sum(torch.logsumexp),
    "ReduceSumSquare": _pick_sum(lambda x, i, k: (x * x).sum(i, k)),
    "Round": lambda g, a, x: torch.round(x), "ScatterND": _scatter_nd,
    "Softsign": lambda g, a, x: F.softsign(x), "SpaceToDepth": _space_to_depth,
    "Tan": lambda g, a, x: torch.tan(x),
    "ThresholdedRelu": lambda g, a, x: torch.where(x > a.get("alpha", 1.0), x, torch.zeros_like(x)),
    "Trilu": _trilu, "Xor": lambda g, a, x, y: torch.logical_xor(x, y),
    "Sinh": lambda g, a, x: torch.sinh(x), "Cosh": lambda g, a, x: torch.cosh(x),
}  # fmt: skip
