from cases.case import Case
from cases.gate_family import DRAWN, SHAPES
from cases.samples import normal

CASES = [
    *(Case(title, X=normal(*shape), **more) for title, shape, more in SHAPES),
    *(Case(title, X=draw(*shape), **more) for title, shape, more, draw in DRAWN),
]
