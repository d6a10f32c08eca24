"""Shapes and scales of the operators that quantise: per tensor, per channel, per block; signed and unsigned."""

from __future__ import annotations

import numpy as np

from cases.samples import exactly, uniform

INT8 = dict(quant_min=-128, quant_max=127)
UINT8 = dict(quant_min=0, quant_max=255)
INT4 = dict(quant_min=-8, quant_max=7)


def scales(*shape, low=0.01, high=0.05):
    return uniform(*shape, low=low, high=high)


def zeros_of(*shape, low=0, high=255):
    """Zero points: integers, as floats."""
    return lambda rng: rng.integers(low, high + 1, shape).astype(np.float64)


def layouts():
    """(title, shape of x, shape of scale, attributes): every way in which scales can lie."""
    yield "one scale, a scalar", (6, 5), (), INT8
    yield "one scale, a vector of one", (6, 5), (1,), INT8
    yield "a scalar tensor", (), (), INT8
    yield "a long vector", (70_001,), (), INT8
    for n in (1, 2, 3, 7, 8, 15, 16, 17, 33, 100):
        yield f"{n} channels of 3 × 3", (4, n, 3, 3), (n,), dict(INT8, axis=1)
        yield f"{n} columns", (9, n), (n,), dict(INT8, axis=-1)
    yield "weights of a convolution, by their first axis", (16, 8, 3, 3), (16,), dict(INT8, axis=0)
    yield "channels with long planes", (3, 5, 40, 41), (5,), dict(INT8, axis=1)
    yield "the plane longer than a piece", (2, 3, 200, 201), (3,), dict(INT8, axis=1)
    yield "planes of 64, the first that are runs", (3, 7, 8, 8), (7,), dict(INT8, axis=1)
    yield "many rows", (3000, 10), (10,), dict(INT8, axis=1)
    yield "blocks of the last axis", (6, 64), (6, 4), dict(INT4, axis=1, block_size=16)
    yield "a last block that is short", (5, 37), (5, 3), dict(INT4, axis=1, block_size=16)
    yield "blocks of the first axis", (64, 12), (4, 12), dict(INT4, axis=0, block_size=16)
    yield "a short block of the first axis", (37, 5), (3, 5), dict(INT4, axis=0, block_size=16)
    yield "blocks of a middle axis", (3, 20, 7), (3, 3, 7), dict(INT4, axis=1, block_size=8)
    yield "blocks of one", (4, 6), (4, 6), dict(INT4, axis=1, block_size=1)
    yield "a block longer than the axis", (4, 6), (4, 1), dict(INT4, axis=1, block_size=32)
    yield "unsigned", (8, 33), (), UINT8
    yield "unsigned, by channel", (4, 6, 10, 10), (6,), dict(UINT8, axis=1)
    yield "16 bits", (8, 33), (), dict(quant_min=-32768, quant_max=32767)
    yield "one bit", (8, 33), (), dict(quant_min=0, quant_max=1)
    yield "empty", (0, 5), (5,), dict(INT8, axis=1)
    yield "no channels", (5, 0), (0,), dict(INT8, axis=1)
    yield "empty, one scale", (0,), (), INT8


def halves(x):
    """Numbers that lie exactly between two integers, and at the ends of the range."""
    return exactly(np.array(x))
