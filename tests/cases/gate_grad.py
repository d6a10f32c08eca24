from cases.case import Case
from cases.gate_family import DRAWN, SHAPES, halved
from cases.samples import normal, zeros


def _case(title, shape, more, draw=normal, dy=normal):
    return Case(title, dY=dy(*halved(shape, **more)), X=draw(*shape), **more)


CASES = [
    *(_case(*row) for row in SHAPES),
    *(_case(*row) for row in DRAWN),
    _case("zero cotangent", (2, 4, 9), {}, dy=zeros),
    _case("a large cotangent", (2, 4, 9), {}, dy=lambda *s: normal(*s, spread=1e5)),
]
