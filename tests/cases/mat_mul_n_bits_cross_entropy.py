from cases.linear_cross_entropy import label_samples
from cases.packed_family import nbits_case


def _case(title, rows, K, N, ignored=None, **more):
    return nbits_case("X", title, rows, K, N, **label_samples(rows, N, ignored), **more)


CASES = [
    _case("a small matrix", (3,), 32, 8),
    _case("sum", (3,), 32, 8, reduction="sum"),
    _case("one number", (1,), 1, 1),
    _case("rows of a batch", (2, 3), 64, 16),
    _case("no rows: 0", (0,), 32, 8),
    _case("some labels are ignored", (2, 6), 64, 16, ignored=-100),
    _case("columns that end a block early", (4,), 50, 9),
    _case("packed zero points", (5,), 96, 7, zero="packed"),
    _case("zero points as numbers, a class is ignored", (5,), 96, 7, ignored=2, zero="numbers"),
    _case("8 bits", (5,), 64, 12, bits=8),
    _case("2 bits, packed zero points", (5,), 144, 12, bits=2, zero="packed"),
    _case("blocks of 128", (5,), 200, 11, block_size=128, zero="packed"),
    _case("more than one piece", (7,), 300, 141),
    _case("deeper than one block of depth", (6,), 530, 270),
    _case("more rows than exist at a time", (1100,), 32, 9),
]
