"""The settings that both recurrent families are tried in, and the cases made of them.

A setting is a forward call. It becomes a case of the forward operator and, with what the reference forward gives and
random cotangents, a case of the gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping

import numpy as np

from cases.case import Case

FUNCTIONS = (
    "Affine", "Relu", "LeakyRelu", "ThresholdedRelu", "Tanh", "ScaledTanh", "Sigmoid", "HardSigmoid", "Elu", "Softsign",
    "Softplus",
)  # fmt: skip
ALPHAS, BETAS = [0.4, 0.7, 0.3, 0.6, 0.5, 0.8], [0.3, 0.5, 0.2, 0.6, 0.4, 0.7]


@dataclasses.dataclass(frozen=True)
class Family:
    """What tells LSTM from GRU."""

    op: str
    gates: int
    standard: tuple[str, ...]
    flag: str  # the attribute that only this family has
    states: tuple[str, ...]  # initial states, each with a final state
    peepholes: bool
    forward: Callable
    kept: tuple[str, ...]  # outputs of the forward that the gradient reads
    outputs: tuple[str, ...]  # of the forward
    gradients: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Setting:
    title: str
    S: int = 3
    N: int = 4
    I: int = 3  # noqa: E741
    H: int = 5
    lengths: tuple[int, ...] | None = None
    without: tuple[str, ...] = ()  # optional inputs that are left out
    scale: float = 1.0
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def directions(self) -> int:
        return 2 if self.attributes.get("direction") == "bidirectional" else 1


def draw_inputs(family: Family, s: Setting) -> dict[str, np.ndarray]:
    """The inputs of the forward call, drawn from a generator seeded by the title."""
    rng = np.random.default_rng(zlib.crc32(s.title.encode()))
    D, gates = s.directions, family.gates * s.H

    def weights(*shape):
        return rng.normal(0, s.scale / np.sqrt(max(shape[-1], 1)), shape)

    arrays = {
        "X": rng.normal(0, s.scale, (s.S, s.N, s.I)),
        "W": weights(D, gates, s.I),
        "R": weights(D, gates, s.H),
    }
    arrays["B"] = rng.normal(0, 0.5, (D, 2 * gates))
    for state in family.states:
        arrays[state] = rng.normal(0, 0.7, (D, s.N, s.H))
    if family.peepholes:
        arrays["P"] = rng.normal(0, 0.5, (D, 3 * s.H))
    if s.lengths is not None:
        arrays["SL"] = np.array(s.lengths, np.int32)
    return {k: v for k, v in arrays.items() if k not in s.without}


def draw_gradient_inputs(family: Family, s: Setting) -> dict[str, np.ndarray]:
    """The inputs of the gradient: those of the forward, what it keeps, and cotangents."""
    inputs = draw_inputs(family, s)
    results = dict(zip(family.outputs, family.forward(**inputs, **s.attributes), strict=True))
    rng = np.random.default_rng(zlib.crc32(s.title.encode()) + 1)
    final = {"H0": "Ht", "C0": "Ct"}
    cotangents = {
        f"grad_{n}": rng.normal(0, 1, results[n].shape)
        for n in ("HAll", *(final[x] for x in family.states))
    }
    arrays = {**inputs, **{n: results[n] for n in family.kept}, **cotangents}
    if family.op == "lstm":
        arrays.pop("B", None)  # LSTMGrad has no use for it
    return arrays


@functools.cache
def drawn_inputs(family: Family, title: str) -> dict[str, np.ndarray]:
    return draw_inputs(family, next(s for s in settings(family) if s.title == title))


@functools.cache
def drawn_gradient_inputs(family: Family, title: str) -> dict[str, np.ndarray]:
    return draw_gradient_inputs(family, next(s for s in settings(family) if s.title == title))


def sample(draw, family, title, name):
    return lambda rng: draw(family, title)[name]


def forward_case(family: Family, s: Setting, title: str | None = None, outputs=None) -> Case:
    names = drawn_names(family, s)
    samples = {n: sample(drawn_inputs, family, s.title, n) for n in names}
    return Case(title or s.title, outputs=outputs, **samples, **s.attributes)


def gradient_case(
    family: Family, s: Setting, title: str | None = None, outputs=None, without=()
) -> Case:
    names = [n for n in drawn_names(family, s) if not (family.op == "lstm" and n == "B")]
    names += [*family.kept, "grad_HAll", "grad_Ht", *(["grad_Ct"] if "C0" in family.states else [])]
    samples = {
        n: sample(drawn_gradient_inputs, family, s.title, n) for n in names if n not in without
    }
    return Case(title or s.title, outputs=outputs, **samples, **s.attributes)


def drawn_names(family: Family, s: Setting) -> list[str]:
    names = ["X", "W", "R", "B", *family.states, *(["P"] if family.peepholes else [])]
    return [n for n in names if n not in s.without] + (["SL"] if s.lengths is not None else [])


# ---- the settings


def shape_settings() -> list[Setting]:
    shapes = {
        "one step": dict(S=1),
        "one row": dict(N=1),
        "one hidden unit": dict(H=1),
        "one input": dict(I=1),
        "everything is one": dict(S=1, N=1, I=1, H=1),
        "two rows, one register": dict(N=2, H=16),
        "three rows, one unit more than a register": dict(N=3, H=17),
        "one unit less than a panel": dict(H=31),
        "a panel": dict(H=32),
        "one unit more than a panel": dict(H=33),
        "two panels, one row": dict(N=1, H=64, I=64, S=6),
        "many inputs": dict(I=70),
        "more rows than a tile": dict(N=13, H=9),
        "several chunks": dict(S=40, N=13, I=4, H=6),
        "a step larger than a chunk": dict(S=2, N=300, I=2, H=3),
        "long and narrow": dict(S=300, N=1, I=2, H=4),
        "enough for slices": dict(S=4, N=24, I=40, H=130),
        "no steps": dict(S=0),
        "no rows": dict(N=0),
        "no inputs": dict(I=0),
    }
    # hidden_size is given because the old package insists on it: these cases are compared with it
    return [
        Setting(title, **shape, attributes={"hidden_size": shape.get("H", Setting.H)})
        for title, shape in shapes.items()
    ]


def length_settings() -> list[Setting]:
    rows = []
    lengths = {
        "sorted": (5, 4, 2, 1),
        "unsorted": (2, 5, 1, 4),
        "with empty rows": (0, 3, 0, 5),
        "all full": (5, 5, 5, 5),
        "all short": (2, 1, 2, 2),
        "all empty": (0, 0, 0, 0),
    }
    for direction in ("forward", "reverse", "bidirectional"):
        for name, values in lengths.items():
            attributes = {"direction": direction}
            rows.append(
                Setting(f"lengths {name}, {direction}", S=5, lengths=values, attributes=attributes)
            )
    many = tuple(int(x) for x in np.random.default_rng(5).integers(0, 31, 40))
    rows.append(Setting("lengths over chunks", S=30, N=40, H=4, lengths=many))
    both = dict(direction="bidirectional")
    rows.append(
        Setting(
            "lengths over chunks, bidirectional", S=30, N=40, H=4, lengths=many, attributes=both
        )
    )
    return rows


def direction_settings() -> list[Setting]:
    rows = []
    for direction in ("reverse", "bidirectional"):
        attributes = {"direction": direction}
        rows.append(Setting(direction, attributes=attributes))
        rows.append(Setting(f"{direction}, one step", S=1, attributes=attributes))
        rows.append(Setting(f"{direction}, one row", N=1, attributes=attributes))
        rows.append(Setting(f"{direction}, several chunks", S=40, N=13, H=6, attributes=attributes))
        rows.append(
            Setting(
                f"{direction}, an even number of chunks", S=40, N=26, H=4, attributes=attributes
            )
        )
        rows.append(
            Setting(f"{direction}, enough for slices", N=16, I=33, H=97, attributes=attributes)
        )
        rows.append(
            Setting(f"{direction}, rows as slices", S=20, N=32, I=8, H=72, attributes=attributes)
        )
        rows.append(
            Setting(
                f"{direction}, weights alone", without=("B", "H0", "C0", "P"), attributes=attributes
            )
        )
    return rows


def optional_settings(family: Family) -> list[Setting]:
    optional = ["B", *family.states, *(["P"] if family.peepholes else [])]
    given = {"hidden_size": Setting.H}  # as above
    rows = [Setting("weights alone", without=tuple(optional), attributes=given)]
    rows += [Setting(f"without {n}", without=(n,), attributes=given) for n in optional]
    rows += [
        Setting(f"only {n}", without=tuple(x for x in optional if x != n), attributes=given)
        for n in optional
    ]
    return rows


def activation_settings(family: Family) -> list[Setting]:
    """Each function in each place; the other places keep the standard functions."""
    rows = []
    for place, position in enumerate(("gates", "candidate", "cell")[: len(family.standard)]):
        for name in FUNCTIONS:
            names = list(family.standard)
            names[place] = name
            attributes = dict(activations=names, activation_alpha=ALPHAS, activation_beta=BETAS)
            rows.append(Setting(f"{name} for the {position}", attributes=attributes, scale=0.6))
    names = [*FUNCTIONS[2 : 2 + len(family.standard)], *family.standard]
    both = dict(
        direction="bidirectional",
        activations=names,
        activation_alpha=ALPHAS[:2],
        activation_beta=BETAS[:1],
    )
    mixed = (["HardSigmoid", "ScaledTanh", "Elu"] * 2)[: 2 * len(family.standard)]
    parameters = dict(direction="bidirectional", activation_alpha=ALPHAS, activation_beta=BETAS)
    short = ["HardSigmoid", "LeakyRelu", "Elu"][: len(family.standard)]
    rows += [
        Setting("different functions in both directions", attributes=both, scale=0.6),
        Setting("alphas run out", attributes=dict(activations=short, activation_alpha=[0.3])),
        Setting(
            "names in any case", attributes=dict(activations=[n.upper() for n in family.standard])
        ),
        Setting(
            "alphas in order over both directions",
            attributes={**parameters, "activations": mixed},
            scale=0.6,
        ),
    ]
    return rows


def clip_settings(family: Family) -> list[Setting]:
    rows = [Setting(f"clip {clip}", attributes=dict(clip=clip)) for clip in (0.05, 0.3, 1.0, 5.0)]
    for direction in ("reverse", "bidirectional"):
        rows.append(Setting(f"clip, {direction}", attributes=dict(clip=0.4, direction=direction)))
    for name in ("HardSigmoid", "Softsign", "Elu", "LeakyRelu", "Affine", "Softplus"):
        names = [name, "Relu" if name == "HardSigmoid" else name, "Tanh"][: len(family.standard)]
        attributes = dict(
            clip=0.4, activations=names, activation_alpha=ALPHAS, activation_beta=BETAS
        )
        rows.append(Setting(f"clip with {name}", attributes=attributes))
    rows.append(Setting("clip with lengths", S=5, lengths=(2, 5, 0, 3), attributes=dict(clip=0.3)))
    return rows


def flag_settings(family: Family) -> list[Setting]:
    on = {family.flag: 1}
    return [
        Setting(family.flag, attributes=on),
        Setting(f"{family.flag}, hidden_size given", attributes={**on, "hidden_size": 5}),
        Setting(f"{family.flag}, reverse", attributes={**on, "direction": "reverse"}),
        Setting(f"{family.flag}, bidirectional", attributes={**on, "direction": "bidirectional"}),
        Setting(f"{family.flag}, one row", N=1, H=40, attributes=on),
        Setting(f"{family.flag}, a register and one", H=17, attributes=on),
        Setting(f"{family.flag}, enough for slices", N=24, I=40, H=130, attributes=on),
        Setting(f"{family.flag}, several chunks", S=40, N=13, H=6, attributes=on),
        Setting(f"{family.flag}, rows as slices", S=20, N=32, I=8, H=72, attributes=on),
        Setting(f"{family.flag}, weights alone", without=("B", "H0", "C0", "P"), attributes=on),
        Setting(f"{family.flag}, lengths", S=5, lengths=(2, 5, 0, 3), attributes=on),
        Setting(
            f"{family.flag}, lengths, bidirectional", S=5, lengths=(2, 5, 0, 3),
            attributes={**on, "direction": "bidirectional"},
        ),
        Setting(f"{family.flag}, clip", attributes={**on, "clip": 0.4}),
        Setting("saturated", scale=6.0),
        Setting("tiny", scale=1e-4),
    ]  # fmt: skip


@functools.cache
def settings(family: Family) -> tuple[Setting, ...]:
    return (
        *shape_settings(),
        *direction_settings(),
        *length_settings(),
        *optional_settings(family),
        *activation_settings(family),
        *clip_settings(family),
        *flag_settings(family),
    )


def forward_cases(family: Family) -> list[Case]:
    both = next(s for s in settings(family) if s.title == "lengths unsorted, bidirectional")
    return [
        *(forward_case(family, s) for s in settings(family)),
        *(forward_case(family, both, f"{n} alone", outputs=(n,)) for n in family.outputs),
    ]


def gradient_cases(family: Family) -> list[Case]:
    both = next(s for s in settings(family) if s.title == "lengths unsorted, bidirectional")
    plain = next(s for s in settings(family) if s.title == "one step")
    cotangents = ["grad_HAll", "grad_Ht", *(["grad_Ct"] if "C0" in family.states else [])]
    return [
        *(gradient_case(family, s) for s in settings(family)),
        *(gradient_case(family, both, f"{n} alone", outputs=(n,)) for n in family.gradients),
        *(
            gradient_case(family, plain, f"{n} alone, one direction", outputs=(n,))
            for n in family.gradients
        ),
        gradient_case(family, both, "frozen weights", outputs=("dX", "dH0")),
        *(gradient_case(family, both, f"without {n}", without=(n,)) for n in cotangents),
        *(
            gradient_case(
                family,
                both,
                f"{n} as the only cotangent",
                without=tuple(c for c in cotangents if c != n),
            )
            for n in cotangents
        ),
    ]
