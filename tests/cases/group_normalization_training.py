from cases.batch_norm_internal import BY_COTANGENT
from cases.case import Case
from cases.channel_norm_family import SHAPES, parts
from cases.samples import normal, uniform


def _case(title, shape, more, groups=2, **also):
    _, x, scale, attributes = parts(shape, **more, **also)
    bias = normal({**more, **also}.get("scales", shape[1]))
    return Case(title, X=x, scale=scale, bias=bias, num_groups=groups, **attributes)


def _relu(title, shape, groups, **also):
    return _case(title, shape, dict(attributes=dict(activation="relu")), groups, **also)


CASES = [
    *(_case(*row) for row in SHAPES if row[0] not in BY_COTANGENT),
    _case("one group", (2, 6, 5, 5), {}, 1),
    _case("a group per channel", (2, 6, 5, 5), {}, 6),
    _case("32 groups of a U-Net", (2, 64, 8, 8), {}, 32),
    _case("one large group", (1, 6, 60, 61), {}, 1),
    _case("far from 0", (2, 6, 5, 5), dict(shift=1e3), 3),
    _case("a scale per group, as opset 18", (2, 6, 5, 5), {}, 3, scales=3),
    _case("a scale per group, large", (2, 8, 70, 71), {}, 2, scales=2),
    _case("without spatial dims", (5, 12), {}, 3),
    _relu("and Relu", (2, 6, 5, 5), 3),
    _relu("and Relu, small groups of a DenseNet", (4, 104, 8, 8), 8),
    _relu("and Relu, large", (2, 8, 70, 71), 2),
    _relu("and Relu, one large group", (1, 6, 60, 61), 1),
    _relu("and Relu, rows of a register and one", (3, 4, 9), 2),
    Case("scale and bias as they lie in an exported product", X=normal(2, 6, 5, 5),
         scale=uniform(6, 1, 1, low=0.5, high=1.5), bias=normal(6, 1, 1), num_groups=3),
]  # fmt: skip
