"""Pictures changed at random: what each change does, how far, and that it follows from seed, epoch and row."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from onnxgrad.data.augment import STRENGTHS, Augment
from onnxgrad.data.batches import Batches
from onnxgrad.data.goals import Goal, RowWeights
from onnxgrad.data.images import Images
from onnxgrad.data.matched import Feed, Matched
from onnxgrad.data.share import Share
from onnxgrad.data.table import Table

image = pytest.importorskip("PIL.Image")
PICTURE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def drawn(augment: Augment, count: int = 200, picture: np.ndarray = PICTURE, size=(20, 30)):
    return [augment.picture(picture, size, np.random.default_rng([1, row])) for row in range(count)]


def test_flip_happens_as_often_as_it_says():
    found = drawn(Augment(flip=0.25), 400)
    mirrored = [np.array_equal(p, PICTURE[:, ::-1]) for p in found]
    assert 70 <= sum(mirrored) <= 130
    assert all(m or np.array_equal(p, PICTURE) for m, p in zip(mirrored, found, strict=True))


def test_a_crop_keeps_its_share_of_the_area():
    """Of a picture whose numbers are its columns and rows the part that is seen can be read."""
    y, x = np.mgrid[:100, :100]
    ramp = np.stack([x * 2, y * 2, 0 * x], 2).astype(np.uint8)
    shares = []
    for part in drawn(Augment(crop=0.5), 200, ramp, (50, 50)):
        wide = float(part[25, -1, 0]) - float(part[25, 0, 0])
        high = float(part[-1, 25, 1]) - float(part[0, 25, 1])
        shares.append(wide * high / 198**2)
    assert 0.42 <= min(shares) <= 0.6
    assert max(shares) >= 0.85


def test_turning_stays_within_its_degrees():
    """A bright line through the middle says how far it was turned."""
    line = np.zeros((41, 41, 1), np.uint8)
    line[20] = 255
    angles = []
    for turned in drawn(Augment(rotate=20), 100, line, (41, 41)):
        y, x = np.nonzero(turned[..., 0] > 128)
        angles.append(np.degrees(np.arctan(np.polyfit(x - 20, 20 - y, 1)[0])))
    assert 15 <= max(angles) <= 21
    assert -21 <= min(angles) <= -15


def test_colours_stay_within_their_factor():
    grey = np.full((4, 4, 3), 100, np.uint8)
    values = [int(p[0, 0, 0]) for p in drawn(Augment(colour=0.2), 200, grey, (4, 4))]
    assert 80 <= min(values) <= 84
    assert 116 <= max(values) <= 120


def test_mixing_adds_up_to_the_same_sum():
    batch = {
        "x": np.eye(6, dtype=np.float32),
        "t": np.eye(6, dtype=np.float32),
        "w": np.arange(6.0),
    }
    mixed = Augment(mixup=1.0).mixed(batch, ["x", "t"], [0, 0, 0])
    np.testing.assert_array_equal(mixed["x"], mixed["t"])
    np.testing.assert_allclose(mixed["x"].sum(0), 1, atol=1e-6)
    assert mixed["w"] is batch["w"]
    others = [Augment(mixup=1.0).mixed(batch, ["x"], [0, 0, n])["x"].tobytes() for n in range(9)]
    assert len(set(others)) == 9  # another share in every batch


def test_one_change_does_not_change_the_chance_of_another():
    flips = [np.array_equal(p, PICTURE[:, ::-1]) for p in drawn(Augment(flip=0.5), 50)]
    both = drawn(Augment(flip=0.5, colour=1e-9), 50)
    assert flips == [np.array_equal(p, PICTURE[:, ::-1]) for p in both]


def test_the_rows_decide_whoever_reads_them(tmp_path):
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.png")
        image.fromarray(np.roll(PICTURE, number, 0)).save(paths[-1])
    augment = Augment.parse(",".join(n for n in STRENGTHS))
    whole = Images([Path(p) for p in paths]).varied(np.arange(6), augment, [3, 1])
    again = Images([Path(p) for p in paths])
    for rows in itertools.chain([[5], [0, 3]], [[4, 2, 1]]):
        np.testing.assert_array_equal(again.varied(np.array(rows), augment, [3, 1]), whole[rows])
    other = again.varied(np.arange(6), augment, [3, 2])
    assert all(not np.array_equal(a, b) for a, b in zip(other, whole, strict=True))


# ---- in batches


@pytest.fixture
def batches(tmp_path):
    """Six pictures with a class and a number each, in batches of four; `augment` as the command line has it."""
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.png")
        image.fromarray(np.roll(PICTURE, number, 0)).save(paths[-1])
    label = np.arange(6) % 3
    table = Table(
        "photos",
        {"picture": Images(paths), "label": label, "price": np.arange(6.0), "weight": np.ones(6)},
    )
    goals = [
        Goal("class", ("label",), True, False, np.dtype(np.float32), [], shares=3),
        Goal("price", ("price",), False, True, np.dtype(np.float32), []),
        RowWeights("weight", ("weight",), np.dtype(np.float32)),
    ]  # fmt: skip
    matched = Matched(
        inputs={"x": Feed(["picture"], None, None), "id": Feed(["price"], None, None)}
    )

    def make(augment: str, **more) -> Batches:
        return Batches(table, matched, goals, 4, augment=Augment.parse(augment), seed=5, **more)

    return make


def test_epochs_are_changed_and_what_is_looked_at_is_not(batches):
    plain, flipped = batches(""), batches("flip=1")
    for a, b in zip(plain.epoch(0), flipped.epoch(0), strict=True):
        np.testing.assert_array_equal(b.arrays["x"], a.arrays["x"][..., ::-1])
        for name in ("class", "price", "weight", "id"):
            np.testing.assert_array_equal(a.arrays[name], b.arrays[name])
    for a, b in zip(plain.in_order(), flipped.in_order(), strict=True):
        np.testing.assert_array_equal(a.arrays["x"], b.arrays["x"])
    assert plain.digest() == flipped.digest()


def test_mixed_rows_are_mixed_with_their_targets(batches):
    """Pictures and what is foretold of them; not other inputs, nor what a row weighs."""
    for plain, mixed in zip(batches("").epoch(2), batches("mixup=1").epoch(2), strict=True):
        old, new = plain.arrays, mixed.arrays
        np.testing.assert_allclose(new["class"].sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(new["price"].sum(), old["price"].sum(), rtol=1e-6)
        np.testing.assert_allclose(new["x"].sum(0), old["x"].sum(0), rtol=1e-4, atol=1e-3)
        for name in ("id", "weight"):
            np.testing.assert_array_equal(old[name], new[name])
    first, again = (next(iter(batches("mixup=1").epoch(e))).arrays["price"] for e in (0, 0))
    np.testing.assert_array_equal(first, again)
    other = next(iter(batches("mixup=1").epoch(1))).arrays["price"]
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, next(iter(batches("").epoch(0))).arrays["price"])


@pytest.mark.parametrize("augment", ["", "flip,rotate", "mixup=1"])
def test_a_share_of_a_batch_has_the_rows_of_the_whole(batches, augment):
    whole = list(batches(augment, shuffle=True).epoch(1, 0))
    for rank in (0, 1):
        share = Share(rank, rank + 1, 2)
        for batch, part in zip(
            whole, batches(augment, shuffle=True).epoch_share(1, 0, share), strict=True
        ):
            low, high = share.bounds(len(batch.arrays["x"]))
            for name, array in batch.arrays.items():
                np.testing.assert_array_equal(part.arrays[name], array[low:high], err_msg=name)
            assert part.total == len(batch.arrays["x"])
