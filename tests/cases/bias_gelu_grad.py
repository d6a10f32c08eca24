from cases.case import Case
from cases.samples import normal, ones, uniform, zeros


def _case(title, *shape, dy=normal, x=normal, b=normal):
    return Case(title, dY=dy(*shape), X=x(*shape), B=b(shape[-1]))


CASES = [
    *(
        _case(f"{n} channels", 5, n)
        for n in (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257, 768)
    ),
    *(_case(f"{n} rows", n, 24) for n in (1, 2, 3, 15, 16, 17, 100, 1500)),
    _case("a vector: dB is dX", 30),
    _case("three dims", 3, 5, 24),
    _case("four dims", 2, 3, 4, 20),
    _case("no rows", 0, 8),
    _case("no channels", 4, 0),
    _case("no bias to speak of", 9, 24, b=zeros),
    _case("unit cotangent", 9, 24, dy=ones),
    _case("zero cotangent", 9, 24, dy=zeros),
    _case("large inputs: 0 or dY", 9, 24, x=lambda *s: normal(*s, spread=30.0)),
    _case("small inputs", 9, 24, x=lambda *s: normal(*s, spread=1e-3)),
    _case("a large bias", 9, 24, b=lambda *s: normal(*s, spread=10.0)),
    _case("positive inputs", 9, 24, x=lambda *s: uniform(*s, low=0, high=4)),
    _case("negative inputs", 9, 24, x=lambda *s: uniform(*s, low=-4, high=0)),
    _case("more than one block", 700, 130),
    _case("many short rows", 20_000, 3),
    _case("one wide row", 1, 40_001),
]
