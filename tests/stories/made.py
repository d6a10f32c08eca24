"""Raw data of the stories, drawn from seeds or read from data/: needs NumPy alone, so that the peers see the same.

`peers.py` is what trains scikit-learn and PyTorch on them and writes data/peers.json.
"""

from __future__ import annotations

import csv
import json
import wave
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
RATE = 8000  # of the sounds


def peer(story: str) -> float:
    """The score that a peer reached on the same rows, as peers.py recorded it."""
    return json.loads((DATA / "peers.json").read_text())[story]["score"]


def read_csv(path: str | Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def part(rows: list, share: float, seed: int = 0) -> tuple[list, list]:
    """Two parts of a list, shuffled: the rest, and `share` of it."""
    order = np.random.default_rng(seed).permutation(len(rows))
    cut = round(len(rows) * share)
    return [rows[i] for i in order[cut:]], [rows[i] for i in order[:cut]]


def numbers(rows: list[dict]) -> np.ndarray:
    """All columns but the last."""
    return np.array([[float(v) for v in list(r.values())[:-1]] for r in rows], np.float32)


def fraud(seed: int, rows: int = 1500) -> list[dict]:
    """Three in a hundred are frauds: large sums at night, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6))
    risk = 1.6 * x[:, 0] + 1.2 * x[:, 1] * x[:, 2] + rng.normal(0, 0.7, rows)
    is_fraud = risk > np.quantile(risk, 0.97)
    return [
        {**{f"f{i}": f"{v:.4f}" for i, v in enumerate(row)}, "fraud": "yes" if y else "no"}
        for row, y in zip(x, is_fraud, strict=True)
    ]


def tagged_news() -> list[dict]:
    """Five numbers, and three things that may be true at once."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 5))
    tags = x @ rng.normal(size=(5, 3)) + rng.normal(0, 0.2, (700, 3)) > 0.3
    return [
        {**{f"x{i}": f"{v:.4f}" for i, v in enumerate(a)},
         **{n: int(v) for n, v in zip(("news", "sport", "fun"), b, strict=True)}}
        for a, b in zip(x, tags, strict=True)
    ]  # fmt: skip


def sunspots() -> list[dict]:
    """Windows of 24 values of a cycle with noise, and the next value."""
    rng = np.random.default_rng(3)
    t = np.arange(600)
    series = 60 + 50 * np.sin(2 * np.pi * t / 66) + rng.normal(0, 6, 600)
    return [
        {**{f"m{i}": f"{series[s + i]:.3f}" for i in range(24)}, "next": f"{series[s + 24]:.3f}"}
        for s in range(576)
    ]


def boxes() -> dict[str, np.ndarray]:
    """Rows of 8 numbers with a box of 4 and a score."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 8)).astype(np.float32)
    box = (x @ rng.normal(0, 0.3, (8, 4)) + rng.normal(0, 0.05, (600, 4))).astype(np.float32)
    return {"x": x, "box": box, "score": (x[:, 0] + x[:, 1] > 0).astype(np.int64)}


# ---- pictures

SHAPES = ("cross", "disc", "ring", "square", "stripes")


def picture(shape: str, rng: np.random.Generator) -> np.ndarray:
    """A shape somewhere on a noisy ground, bytes [height, width, 3], of a size of its own."""
    height, width = (int(rng.integers(30, 44)) for _ in range(2))
    y, x = np.mgrid[:height, :width]
    cy, cx = height / 2 + rng.normal(0, 2), width / 2 + rng.normal(0, 2)
    size = rng.uniform(7, 10)
    far = np.hypot(y - cy, x - cx)
    across = np.maximum(abs(y - cy), abs(x - cx))
    inside = {
        "disc": far < size,
        "ring": (far < size) & (far > size * 0.6),
        "square": across < size * 0.9,
        "cross": (across < size) & (np.minimum(abs(y - cy), abs(x - cx)) < size * 0.25),
        "stripes": (across < size) & (np.floor((y + x) / 3) % 2 == 0),
    }[shape]
    ground, ink = rng.uniform(0, 110, 3), rng.uniform(140, 255, 3)
    pixels = np.where(inside[..., None], ink, ground) + rng.normal(0, 12, (height, width, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def pictures(each: int, seed: int) -> list[tuple[str, np.ndarray]]:
    """Pictures with their classes."""
    rng = np.random.default_rng(seed)
    return [(shape, picture(shape, rng)) for _ in range(each) for shape in SHAPES]


# ---- sounds


def sound(word: bool, rng: np.random.Generator) -> np.ndarray:
    """A fifth of a second, float: noise and a steady tone, or a tone that rises from 500 to 2500 Hz."""
    count = RATE // 5
    t = np.arange(count) / RATE
    made = rng.normal(0, 0.05, count)
    begin, long = rng.uniform(0, 0.08), 0.1
    inside = (t >= begin) & (t < begin + long)
    along = np.clip((t - begin) / long, 0, 1)
    phase = 500 * (t - begin) + 1000 * along * (t - begin) if word else rng.uniform(500, 2500) * t
    return made + inside * 0.5 * np.sin(2 * np.pi * phase + rng.uniform(0, 6))


def sounds(each: int, seed: int) -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [(name, sound(name == "word", rng)) for _ in range(each) for name in ("other", "word")]


def write_wav(path: str | Path, samples: np.ndarray, rate: int = RATE, channels: int = 1) -> None:
    """A plain WAV file of 16 bits."""
    whole = np.clip(np.rint(samples * 32767), -32768, 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(whole, channels).tobytes())


# ---- text

GOOD, BAD = ("good", "great", "lovely", "fine", "superb"), ("bad", "awful", "dull", "poor", "weak")
THINGS = ("film", "book", "meal", "hotel", "game", "song", "trip", "show")
MORE = ("the", "a", "was", "is", "it", "this", "i", "found", "not", "never", "and")
HOW = ("very", "really", "quite", "so")
WORDS = sorted({*GOOD, *BAD, *THINGS, *MORE, *HOW})


def sentence(positive: bool, rng: np.random.Generator) -> str:
    """A few words of praise or blame; a `not` turns a word round."""
    turned = rng.random() < 0.5
    word = rng.choice(GOOD if positive != turned else BAD)
    negation = rng.choice(["not", "never"]) + " " if turned else ""
    more = rng.choice(["", "very ", "really ", "quite ", "so "]) if not turned else ""
    start = rng.choice(["the", "this", "a"])
    thing = rng.choice(THINGS)
    end = rng.choice(
        [
            "",
            " and it was a " + str(rng.choice(THINGS)),
            " so i found the " + str(rng.choice(THINGS)),
        ]
    )
    return f"{start} {thing} was {negation}{more}{word}{end}"


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    return [(sentence(i % 2 == 1, rng), ("blame", "praise")[i % 2]) for i in range(count)]


NAMES = ("lee", "park", "jordan", "florence", "paris", "chelsea", "austin", "sydney")
PLAIN = ("we", "met", "today", "old", "friends", "again", "later", "there")


def tagged(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Words and their tags: after `in` a name is a place, after `with` a person."""
    words, tags = [], []
    for _ in range(int(rng.integers(1, 5))):
        for word in rng.choice(PLAIN, int(rng.integers(0, 3))):
            words.append(str(word))
            tags.append("O")
        before, tag = [("in", "B-LOC"), ("with", "B-PER")][int(rng.integers(2))]
        words += [before, str(rng.choice(NAMES))]
        tags += ["O", tag]
    return words, tags


def tagged_lines(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    rng = np.random.default_rng(seed)
    return [tagged(rng) for _ in range(count)]


TAGS = ("B-LOC", "B-PER", "O")
TAG_WORDS = sorted({*NAMES, *PLAIN, "in", "with"})


# ---- networks, as arrays by name: the story writes them as ONNX, the peer as PyTorch


def weights(seed: int, **shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """He's scale: normal numbers of deviation √(2 / inputs); vectors are zero."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in shapes.items():
        inputs = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        drawn = rng.normal(0, np.sqrt(2 / inputs), shape) if len(shape) > 1 else np.zeros(shape)
        made[name] = drawn.astype(np.float32)
    return made


def picture_net() -> dict[str, np.ndarray]:
    """Two convolutions, the mean over the picture, ten classes."""
    return weights(0, k1=(12, 3, 5, 5), b1=(12,), k2=(24, 12, 3, 3), b2=(24,), w=(24, 10), b=(10,))


def sound_net() -> dict[str, np.ndarray]:
    """A filter bank, a convolution along time, the largest of each, two classes."""
    return weights(1, k1=(16, 1, 32), b1=(16,), k2=(16, 16, 9), b2=(16,), w=(16, 2), b=(2,))


def text_net(words: int, classes: int) -> dict[str, np.ndarray]:
    """An embedding, a convolution over three words, classes."""
    return weights(2, e=(words, 12), k=(24, 12, 3), b1=(24,), w=(24, classes), b=(classes,))
