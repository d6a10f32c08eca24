"""The attentions of both operators' tables: shapes, masks, layouts."""

import zlib

import numpy as np
from reference.attention_training import attention_training

from cases.case import Case
from cases.samples import exactly

INF = np.inf


def drawn(title, shapes, **given):
    """Normal numbers of these shapes that float32 holds exactly; what is given stays as it is."""
    rng = np.random.default_rng(zlib.crc32(title.encode()))
    arrays = {
        k: rng.normal(size=v).astype(np.float32).astype(np.float64) for k, v in shapes.items()
    }
    return {**arrays, **given}


def heads(n, h, s, d, g=None, keys=None, e=None, **more):
    """Shapes of Q, K and V with heads before tokens."""
    g, keys, e = g or h, keys or s, e or d
    return {"Q": (n, h, s, d), "K": (n, g, keys, d), "V": (n, g, keys, e), **more}


def tokens(n, s, h, d, g=None, keys=None, e=None, **more):
    """The same with heads after tokens."""
    g, keys, e = g or h, keys or s, e or d
    return {"Q": (n, s, h, d), "K": (n, keys, g, d), "V": (n, keys, g, e), **more}


def hidden(*shape, last):
    """A mask with −inf over the last keys."""
    mask = np.zeros(shape)
    mask[..., shape[-1] - last :] = -INF
    return mask


KEY = np.array([3, 1], np.int64)
HUGE = np.where(np.arange(24).reshape(1, 1, 4, 6) % 5 == 0, 300.0, -300.0)

# title, shapes of what is drawn, attributes, what is given
ATTENTIONS = [
    ("one head, few tokens", heads(1, 1, 3, 4), {}, {}),
    ("heads of a width that no register has", heads(2, 3, 17, 5), {}, {}),
    ("heads after tokens", tokens(2, 33, 3, 16), {"layout": "tokens"}, {}),
    ("queries, keys and values in one", {"Q": (2, 19, 3, 2, 8)}, {}, {}),
    ("in one, causal", {"Q": (1, 70, 3, 2, 8)}, {"causal": 1}, {}),
    ("fewer keys than queries", heads(2, 2, 9, 8, keys=4), {}, {}),
    ("values of another width", heads(2, 2, 9, 8, keys=21, e=3), {}, {}),
    ("keys shared by heads", heads(2, 6, 11, 8, g=2), {}, {}),
    ("keys shared by all heads, after tokens", tokens(1, 13, 4, 8, g=1), {"layout": "tokens"}, {}),
    ("a scale of its own", heads(1, 2, 7, 8), {"scale": 0.25}, {}),
    ("a negative scale", heads(1, 2, 7, 8), {"scale": -1.5}, {}),
    ("causal", heads(1, 2, 130, 8), {"causal": 1}, {}),
    ("causal, more keys than queries", heads(1, 2, 5, 8, keys=9), {"causal": 1}, {}),
    ("causal, fewer keys than queries", heads(1, 2, 9, 8, keys=5), {"causal": 1}, {}),
    ("several blocks of keys and queries", heads(1, 2, 250, 8, keys=600), {}, {}),
    ("several blocks, causal", heads(1, 1, 530, 4), {"causal": 1}, {}),
    ("several blocks, causal, fewer keys than queries", heads(1, 2, 300, 4, keys=270), {"causal": 1}, {}),
    ("several blocks, causal, more keys than queries", heads(1, 2, 245, 4, keys=300), {"causal": 1}, {}),
    ("causal with a width of two panels", heads(1, 2, 75, 33, e=40), {"causal": 1}, {}),
    ("causal, a mask that heads share", heads(2, 2, 75, 4, mask=(75, 75)), {"causal": 1}, {}),
    ("dropout, causal, several blocks", heads(1, 2, 260, 4), {"ratio": 0.1, "causal": 1}, {"key": KEY}),
    ("several blocks, few keys shared", heads(1, 4, 130, 4, g=1, keys=300), {}, {}),
    ("a mask of scores", heads(2, 3, 6, 4, mask=(2, 3, 6, 6)), {}, {}),
    ("a mask of one batch", heads(3, 2, 6, 4, mask=(1, 2, 6, 6)), {}, {}),
    ("a mask of rank 2", heads(3, 2, 6, 4, keys=7, mask=(6, 7)), {}, {}),
    ("a mask per row", heads(2, 2, 6, 4, mask=(2, 1, 6, 1)), {}, {}),
    ("a mask of one number", heads(2, 2, 6, 4, mask=()), {}, {}),
    ("a mask, keys shared by heads", heads(2, 4, 6, 4, g=2, mask=(1, 4, 6, 6)), {}, {}),
    ("a mask over several blocks", heads(2, 1, 5, 4, keys=520, mask=(5, 520)), {}, {}),
    ("hidden keys", heads(2, 2, 6, 4), {}, {"mask": hidden(2, 1, 1, 6, last=2)}),
    ("hidden keys in the first block", heads(1, 1, 4, 4, keys=300), {},
     {"mask": hidden(1, 1, 1, 300, last=300 - 2)[..., ::-1].copy()}),
    ("causal and hidden", heads(1, 2, 6, 4), {"causal": 1}, {"mask": hidden(6, last=3)}),
    ("rows that read nothing", heads(2, 1, 3, 4), {},
     {"mask": np.stack([hidden(3, 5, last=5)[:, :3], np.zeros((3, 3))])[:, None]}),
    ("scores beyond exp", heads(1, 1, 4, 2, keys=6), {}, {"mask": HUGE}),
    ("dropout", heads(2, 2, 9, 8), {"ratio": 0.25, "stream": 4}, {"key": KEY}),
    ("dropout over several blocks", heads(1, 1, 3, 4, keys=1100), {"ratio": 0.5}, {"key": KEY}),
    ("dropout, causal, in one", {"Q": (2, 40, 3, 2, 4)}, {"ratio": 0.1, "causal": 1}, {"key": KEY}),
    ("a key and no dropout", heads(1, 1, 3, 4), {}, {"key": KEY}),
    ("no batch", heads(0, 2, 3, 4), {}, {}),
    ("no queries", {"Q": (2, 2, 0, 4), "K": (2, 2, 3, 4), "V": (2, 2, 3, 4)}, {}, {}),
    ("no keys", {"Q": (2, 2, 3, 4), "K": (2, 2, 0, 4), "V": (2, 2, 0, 4)}, {}, {}),
    ("no width", {"Q": (1, 2, 3, 0), "K": (1, 2, 4, 0), "V": (1, 2, 4, 5)}, {}, {}),
]  # fmt: skip


WIDER = {
    "scores beyond exp": {"rtol": 1e-4, "why": "the last place of a score of 300 is 3e-5 in float"}
}


def forward_cases():
    for title, shapes, attributes, given in ATTENTIONS:
        arrays = drawn(title, shapes, **given)
        yield Case(
            title,
            **{k: exactly(v) for k, v in arrays.items()},
            **attributes,
            **WIDER.get(title, {}),
        )


def gradient_cases():
    for title, shapes, attributes, given in ATTENTIONS:
        arrays = drawn(title, shapes, **given)
        rounded = {
            k: float(np.float32(v)) if isinstance(v, float) else v for k, v in attributes.items()
        }
        with np.errstate(all="ignore"):
            Y, LSE = attention_training(**arrays, **rounded)
        dY = drawn(f"cotangent of {title}", {"dY": Y.shape})["dY"]
        samples = {"dY": dY, "Y": Y, "LSE": LSE, **arrays}
        outputs = [
            "dQ",
            *(("dK", "dV") if "K" in arrays else ()),
            *(("dmask",) if "mask" in arrays else ()),
        ]
        yield Case(title, **{k: exactly(v) for k, v in samples.items()}, **attributes, outputs=tuple(outputs),
                   **WIDER.get(title, {}))  # fmt: skip
