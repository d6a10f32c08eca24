from cases.case import Case
from cases.samples import normal, ones, zeros


def mask(*shape, share=0.7):
    return lambda rng: rng.random(shape) < share


CASES = [
    *(
        Case(f"{n} elements", dY=normal(n), gradient_mask=mask(n))
        for n in (
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            9,
            15,
            16,
            17,
            31,
            32,
            33,
            63,
            64,
            65,
            100,
            1000,
            40_001,
            70_000,
        )
    ),
    Case("a scalar", dY=normal(), gradient_mask=mask()),
    Case("four dims", dY=normal(2, 3, 4, 5), gradient_mask=mask(2, 3, 4, 5)),
    Case("everything inside", dY=normal(65), gradient_mask=mask(65, share=2.0)),
    Case("everything outside", dY=normal(65), gradient_mask=mask(65, share=-1.0)),
    Case("unit cotangent", dY=ones(33), gradient_mask=mask(33)),
    Case("zero cotangent", dY=zeros(33), gradient_mask=mask(33)),
    *(Case(f"large, {n}", dY=normal(n, spread=1e30), gradient_mask=mask(n)) for n in (4, 21, 90)),
    *(Case(f"small, {n}", dY=normal(n, spread=1e-30), gradient_mask=mask(n)) for n in (4, 21, 90)),
    *(Case(f"rank {r}", dY=normal(*[2] * r), gradient_mask=mask(*[2] * r)) for r in range(2, 9)),
]
