"""What exporters write out in parts, seen again: attention, linear layers, Gelu, Swish, RMSNorm, LayerNorm.

    matching.py     what patterns ask of a graph
    attention.py    softmax(Q·Kᵀ·scale + mask)·V
    heads.py        where its queries, keys and values come from: transposed, or cut out of one packed projection
    activations.py  Gelu by Erf or Tanh, Swish and QuickGelu
    pooling.py      a Relu that can follow a MaxPool instead of coming before it
    gates.py        tanh(a)·sigmoid(b) and a·sigmoid(b) of two halves
    padding.py      zeros that a convolution can add by itself
    splits.py       slices that share a tensor out among them
    linear.py       X·W + B with weights that are trained
    norms.py        RMSNormalization and LayerNormalization
    groups.py       GroupNormalization by way of InstanceNormalization
    rows.py         rows that nobody reads: not a pattern of nodes, but of what is thrown away
    scores.py       the last product of a model and its cross entropy
    spreads.py      gradients that are spread out for readers that would do it themselves; likewise
    sums.py         gradients that are added to what a kernel has just written; of a graph that is differentiated
    packed.py       products with weights in small integers; only where memory is what counts

A pattern is replaced by one operator in a graph that is about to be differentiated: the gradient is then one kernel
instead of a dozen nodes. What is replaced are values that nothing else reads, so every value that has a reader, every
output and every weight stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnxgrad.graph.builder import Builder
from onnxgrad.graph.patterns.activations import see_activation
from onnxgrad.graph.patterns.attention import see_attention
from onnxgrad.graph.patterns.gates import see_gate
from onnxgrad.graph.patterns.groups import see_group_norm
from onnxgrad.graph.patterns.linear import see_linear
from onnxgrad.graph.patterns.matching import Sight, remove_unread
from onnxgrad.graph.patterns.norms import see_norm
from onnxgrad.graph.patterns.padding import see_padded_conv
from onnxgrad.graph.patterns.pooling import see_pooled_relu
from onnxgrad.graph.patterns.rows import select_rows
from onnxgrad.graph.patterns.scores import see_scores
from onnxgrad.graph.patterns.splits import see_split
from onnxgrad.graph.patterns.spreads import drop_spreads as drop_spreads
from onnxgrad.graph.patterns.sums import join_sums as join_sums

Pattern = Callable[[Sight, ir.Node], str | None]
_FIRST: tuple[Pattern, ...] = (see_gate,)  # before the slices that it reads become a Split
_PATTERNS: tuple[Pattern, ...] = (
    see_attention, see_activation, see_norm, see_group_norm, see_pooled_relu, see_padded_conv, see_split, see_linear,
    see_scores,
)  # fmt: skip


def see_patterns(
    model: ir.Model, variables: Iterable[ir.Value], patterns: Iterable[Pattern] = _PATTERNS
) -> dict[str, int]:
    """Replace patterns in the main graph of `model`; return how many of each operator were put in.

    `variables` are the values that a gradient is wanted of, or that change: they are not constants.
    """
    variables, found = set(variables), {}
    for some in (_FIRST, patterns) if patterns is _PATTERNS else (patterns,):
        sight = _sight(model, variables)
        for node in list(model.graph):
            name = next((n for n in (see(sight, node) for see in some) if n), None)
            if name:
                found[name] = found.get(name, 0) + 1
        _finish(sight)
    if patterns is not _PATTERNS:
        return found
    sight = _sight(model, variables)  # of what the patterns have become
    moved = select_rows(sight)
    _finish(sight)
    return {**found, "Slice": moved} if moved else found


def _sight(model: ir.Model, variables: set[ir.Value]) -> Sight:
    return Sight(Builder(model, variables, prefix="pattern"), variables)


def _finish(sight: Sight) -> None:
    if sight.replaced:
        sight.op.finish([])
        remove_unread(sight.op.graph, sight.replaced)
