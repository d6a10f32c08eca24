import numpy as np

from cases.case import Case
from cases.quant_family import INT8, UINT8, halves, layouts, scales, zeros_of
from cases.samples import exactly, normal, values, zeros

CASES = [
    *(
        Case(title, input=normal(*shape), scale=scales(*of), zero_point=zeros(*of), **attributes)
        for title, shape, of, attributes in layouts()
    ),
    *(
        Case(
            f"zero points: {title}",
            input=normal(*shape),
            scale=scales(*of),
            zero_point=zeros_of(*of, low=-3, high=3),
            **attributes,
        )
        for title, shape, of, attributes in layouts()
    ),
    Case(
        "zero point 128",
        input=normal(40),
        scale=scales(),
        zero_point=exactly(np.float64(128)),
        **UINT8,
    ),
    Case(
        "halves go to the even integer",
        input=halves([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, -128.5]),
        scale=exactly(np.float64(1)),
        zero_point=zeros(),
        **INT8,
    ),
    Case(
        "all outside",
        input=normal(50, spread=1e4),
        scale=exactly(np.float64(0.5)),
        zero_point=zeros(),
        **INT8,
    ),
    Case(
        "all to zero",
        input=normal(50, spread=1e-4),
        scale=exactly(np.float64(1)),
        zero_point=zeros(),
        **INT8,
    ),
    Case(
        "infinities are clipped",
        input=values(np.inf, -np.inf, 1.0),
        scale=exactly(np.float64(0.5)),
        zero_point=zeros(),
        **INT8,
    ),
    Case(
        "a zero point between integers is rounded",
        input=normal(40),
        scale=scales(),
        zero_point=exactly(np.float64(3.4)),
        **INT8,
    ),
    Case(
        "the mask left out",
        input=normal(5, 40),
        scale=scales(),
        zero_point=zeros(),
        outputs=("output",),
        **INT8,
    ),
]
