"""Products with weights in small integers: sizes that end a byte, a block, a panel and a piece early."""

import functools

import numpy as np

from cases.case import Case
from cases.samples import integers, normal, uniform

BYTE = {"low": 0, "high": 256, "dtype": np.uint8}


def nbits_case(factor, title, rows, K, N, bits=4, block_size=32, zero="", **more):
    """`factor` is A or X of the forward product, or dY of the backward one."""
    blocks = -(-K // block_size)
    samples = {
        factor: normal(*rows, N if factor == "dY" else K),
        "B": integers(N, blocks, block_size * bits // 8, **BYTE),
        "scales": uniform(N, blocks, low=0.01, high=0.1),
    }
    if zero == "packed":
        samples["zero_points"] = integers(N, -(-blocks * bits // 8), **BYTE)
    if zero == "numbers":
        samples["zeros"] = uniform(N, blocks, low=0.0, high=float(1 << bits))
    return Case(title, **samples, K=K, N=N, bits=bits, block_size=block_size, **more)


def bnb4_case(factor, title, rows, K, N, block_size=64, quant_type=1):
    """As `nbits_case`."""
    return Case(
        title,
        **{factor: normal(*rows, K if factor == "A" else N)},
        B=integers((N * K + 1) // 2, **BYTE),
        absmax=uniform(-(-N * K // block_size), low=0.1, high=1.0),
        K=K, N=N, block_size=block_size, quant_type=quant_type,
    )  # fmt: skip


def nbits_cases(factor: str) -> list[Case]:
    """The table of both operators."""
    case = functools.partial(nbits_case, factor)
    return [
        case("a small matrix", (3,), 32, 8),
        case("one row", (1,), 64, 40),
        case("one number", (1,), 1, 1),
        case("rows of a batch", (2, 3), 64, 16),
        case("a vector", (), 64, 16),
        case("no rows", (0,), 32, 8),
        case("columns that end a block early", (4,), 50, 9),
        case("an odd number of columns", (4,), 37, 9),
        case("packed zero points", (5,), 96, 7, zero="packed"),
        case("zero points that end a byte early", (5,), 160, 7, zero="packed"),
        case("zero points as numbers", (5,), 96, 7, zero="numbers"),
        case("8 bits", (5,), 64, 12, bits=8),
        case("8 bits, packed zero points", (5,), 80, 12, bits=8, zero="packed"),
        case("2 bits", (5,), 64, 12, bits=2),
        case("2 bits, packed zero points", (5,), 144, 12, bits=2, zero="packed"),
        case("blocks of 16", (5,), 80, 11, block_size=16),
        case("blocks of 128", (5,), 200, 11, block_size=128, zero="packed"),
        case("blocks of 256", (5,), 300, 11, block_size=256),
        case("more than one piece", (7,), 300, 141),
        case("deeper than one block of depth", (6,), 530, 270),
        case("more rows than one tile", (250,), 64, 33),
    ]


def bnb4_cases(factor: str) -> list[Case]:
    """The table of both operators."""
    case = functools.partial(bnb4_case, factor)
    return [
        case("a small matrix", (3,), 64, 8),
        case("FP4", (3,), 64, 8, quant_type=0),
        case("one row", (1,), 64, 40),
        case("one number", (1,), 1, 1),
        case("rows of a batch", (2, 3), 64, 16),
        case("a vector", (), 64, 16),
        case("no rows", (0,), 32, 8),
        case("blocks that pass over the ends of rows", (4,), 50, 9),
        case("rows that begin in the middle of a byte", (4,), 37, 9),
        case("blocks of 16", (5,), 80, 11, block_size=16),
        case("blocks of 256", (5,), 300, 11, block_size=256),
        case("more than one piece", (7,), 300, 141),
        case("deeper than one block of depth", (6,), 530, 270),
        case("more rows than one tile", (250,), 64, 33),
    ]
