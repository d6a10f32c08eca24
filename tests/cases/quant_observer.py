import numpy as np

from cases.case import Case
from cases.quant_family import INT8, UINT8, layouts
from cases.samples import exactly, normal, uniform, values, zeros

LOOK, STAY = exactly(np.array([1])), exactly(np.array([0]))


def ranges(*shape):
    """A range so far: from below 0 to above it."""
    return dict(low=uniform(*shape, low=-3.1, high=-2.9), high=uniform(*shape, low=1.4, high=1.6))


CASES = [
    *(
        Case(title, X=normal(*shape), **ranges(*of), observe=LOOK, **attributes)
        for title, shape, of, attributes in layouts()
    ),
    *(
        Case(
            f"symmetric: {title}",
            X=normal(*shape),
            **ranges(*of),
            observe=LOOK,
            symmetric=1,
            momentum=1.0,
            **attributes,
        )
        for title, shape, of, attributes in layouts()
    ),
    Case("not asked to look", X=normal(9, 40), **ranges(), observe=STAY, **INT8),
    Case("not asked to look, by channel", X=normal(9, 4), **ranges(4), observe=STAY, **INT8),
    Case("the new range alone", X=normal(9, 40), **ranges(), observe=LOOK, momentum=1.0, **INT8),
    Case(
        "nothing below 0",
        X=uniform(40, low=0.5, high=1.0),
        low=zeros(),
        high=zeros(),
        observe=LOOK,
        momentum=1.0,
        **UINT8,
    ),
    Case(
        "nothing above 0",
        X=uniform(40, low=-1.0, high=-0.5),
        low=zeros(),
        high=zeros(),
        observe=LOOK,
        momentum=1.0,
        **INT8,
    ),
    Case("an empty range has scale 1", X=zeros(5), low=zeros(), high=zeros(), observe=LOOK, **INT8),
    Case(
        "what is not a number is passed over",
        X=values(np.nan, 1.0, -2.0),
        low=zeros(),
        high=zeros(),
        observe=LOOK,
        **INT8,
    ),
]
