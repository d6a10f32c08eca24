import numpy as np

from cases.case import Case
from cases.quant_family import INT4, INT8, UINT8, halves, layouts, scales, zeros_of
from cases.samples import exactly, normal, ones, zeros

PACED = [
    ("one scale", (6, 50), (), INT8),
    ("by channel", (4, 7, 3, 3), (7,), dict(INT8, axis=1)),
    ("by channel, long planes", (3, 5, 20, 21), (5,), dict(UINT8, axis=1)),
    ("blocks", (5, 37), (5, 3), dict(INT4, axis=1, block_size=16)),
]
CASES = [
    *(
        Case(title, dY=normal(*shape), input=normal(*shape), scale=scales(*of), **attributes)
        for title, shape, of, attributes in layouts()
    ),
    *(
        Case(
            f"zero points: {title}",
            dY=normal(*shape),
            input=normal(*shape),
            scale=scales(*of),
            zero_point=zeros_of(*of, low=-3, high=3),
            **attributes,
        )
        for title, shape, of, attributes in layouts()
    ),
    Case(
        "LSQ's factor",
        dY=normal(9, 40),
        input=normal(9, 40),
        scale=scales(),
        grad_factor=0.01,
        **INT8,
    ),
    *(
        Case(
            f"{pace}{', of a batch' * batched}: {title}",
            dY=normal(*shape),
            input=normal(*shape),
            scale=scales(*of),
            zero_point=zeros_of(*of, low=-3, high=3),
            scale_gradient=pace,
            batched=batched,
            **attributes,
        )
        for pace in ("lsq", "lsq_log")
        for batched in (0, 1)
        for title, shape, of, attributes in PACED
    ),
    Case(
        "lsq: as good as all integers below the zero point",
        dY=normal(9, 40),
        input=normal(9, 40),
        scale=scales(),
        zero_point=exactly(np.float64(127)),
        scale_gradient="lsq",
        **INT8,
    ),
    Case(
        "at the ends of the range",
        dY=ones(6),
        input=halves([126.5, 127.5, -127.5, -128.5, 127.0, -128.0]),
        scale=exactly(np.float64(1)),
        **INT8,
    ),
    Case(
        "all outside",
        dY=normal(50),
        input=normal(50, spread=1e4),
        scale=exactly(np.float64(0.5)),
        **INT8,
    ),
    Case(
        "all to zero",
        dY=normal(50),
        input=normal(50, spread=1e-4),
        scale=exactly(np.float64(1)),
        **INT8,
    ),
    Case("zero cotangent", dY=zeros(5, 6), input=normal(5, 6), scale=scales(6), **UINT8),
    Case(
        "dX alone", dY=normal(5, 40), input=normal(5, 40), scale=scales(), outputs=("dX",), **INT8
    ),
    Case(
        "dscale alone",
        dY=normal(5, 40),
        input=normal(5, 40),
        scale=scales(40),
        outputs=("dscale",),
        **INT8,
    ),
]
