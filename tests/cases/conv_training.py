"""The convolutions of ConvGrad, computed forward; every second one with a bias."""

from cases.case import Case
from cases.conv_grad import CASES as GRADIENTS
from cases.samples import normal


def forward(case, bias):
    """The convolution whose gradient `case` is."""
    samples = {k: case.samples[k] for k in ("X", "W")}
    if bias:
        filters = case.samples["W"]
        samples["B"] = lambda rng: rng.normal(size=len(filters(rng)))
    return Case(case.title, **samples, **case.attributes, rtol=case.rtol, why=case.why)


CASES = [
    *(forward(c, bias=i % 2 == 1) for i, c in enumerate(GRADIENTS) if c.outputs is None),
    Case("a bias of one filter", X=normal(2, 3, 5), W=normal(1, 3, 2), B=normal(1)),
    Case("few filters", X=normal(2, 20, 9, 17), W=normal(3, 20, 3, 3), B=normal(3), pads=[1] * 4),
    Case("few filters, strided", X=normal(1, 9, 9, 17), W=normal(2, 9, 3, 3), strides=[2, 2]),
    Case(
        "3x3, stride 2, many channels",
        X=normal(2, 40, 15, 14),
        W=normal(70, 40, 3, 3),
        pads=[1] * 4,
        strides=[2, 2],
    ),
]
