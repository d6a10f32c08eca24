import numpy as np

from cases.case import Case
from cases.quant_family import INT8, UINT8, halves, layouts, scales, zeros_of
from cases.samples import exactly, normal, ones, zeros

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
