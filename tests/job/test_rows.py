"""Rows set aside: by class, by time, by group, in folds; the same ones whenever they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgrad.data.table import Table
from onnxgrad.errors import ConfigError
from onnxgrad.job.rows import Split

LABELS = np.array([0] * 70 + [1] * 20 + [2] * 9 + [3])
TABLE = Table(
    "d.csv",
    {
        "label": LABELS,
        "group": np.array(list("abcdefghij") * 10),
        "when": np.roll(np.arange(100), 30),
    },
)


def rows(kind: str, share: float = 0.2, seed: int = 0):
    return Split.parse(kind).resolved(True).rows(TABLE, "label", share, seed)


def test_every_class_keeps_its_share():
    found = rows("")
    assert np.bincount(LABELS[found.held], minlength=4).tolist() == [14, 4, 2, 0]
    assert sorted([*found.train, *found.held]) == list(range(100))
    assert (found.held == rows("stratified").held).all()
    assert (found.held != rows("", seed=1).held).any()
    assert (np.diff(found.held) > 0).all()


def test_without_classes_rows_are_random():
    assert Split.parse("").resolved(False).kind == "random"
    with pytest.raises(ConfigError, match="needs a target of classes"):
        Split.parse("stratified").resolved(False)


def test_time_sets_the_last_rows_aside():
    assert rows("time").held.tolist() == list(range(80, 100))
    late = rows("time:when")
    assert TABLE.arrays["when"][late.held].min() > TABLE.arrays["when"][late.train].max()


def test_a_group_is_never_on_both_sides():
    found = rows("group:group", 0.25)
    groups = TABLE.arrays["group"]
    assert not set(groups[found.held]) & set(groups[found.train])
    assert len(found.held) == 30  # three groups of ten reach a quarter
    assert Split.parse("group:group").columns() == ("group",)


@pytest.mark.parametrize("kind", ["", "random", "group:group"])
def test_folds_validate_every_row_once(kind):
    split = Split.parse(kind).resolved(True)
    folds = list(split.folds(TABLE, "label", 5, 0))
    assert sorted(np.concatenate([f.held for f in folds])) == list(range(100))
    for fold in folds:
        assert len(fold.held) == 20
        assert not set(fold.held) & set(fold.train)
        if kind == "":
            counts = np.bincount(LABELS[fold.held], minlength=4)
            assert counts[0] == 14
            assert counts[1] == 4
        if kind == "group:group":
            groups = TABLE.arrays["group"]
            assert not set(groups[fold.held]) & set(groups[fold.train])


def test_folds_by_time_learn_from_the_past_only():
    for fold in Split.parse("time").folds(TABLE, "label", 4, 0):
        assert fold.train.max() < fold.held.min()


@pytest.mark.parametrize("text", ["group", "group:", "random:label", "often", "stratified:x"])
def test_what_means_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="--split is"):
        Split.parse(text)


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="no column 'team'; it has label, group, when"):
        rows("group:team")


def test_one_group_alone_leaves_nothing():
    table = Table("d.csv", {"g": np.zeros(10, int)})
    with pytest.raises(ConfigError, match="all rows are of one group"):
        Split.parse("group:g").rows(table, "g", 0.2, 0)
