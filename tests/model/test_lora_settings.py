"""What Lora takes: numbers that are numbers, and a sentence for anything else."""

from __future__ import annotations

import math

import pytest

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora.settings import Lora, is_number


@pytest.mark.parametrize(
    "alpha", ["x", "16", True, [16], {}, math.nan, math.inf, -math.inf, 0, -1, 10**400, -(10**400)]
)
def test_a_strength_that_is_no_number_is_refused(alpha):
    with pytest.raises(AdapterError, match=r"lora: alpha is .*expected a number above 0"):
        Lora(r=4, alpha=alpha)


@pytest.mark.parametrize("rate", ["0.1", None, False, math.nan, 1, 1.5, -0.1])
def test_a_dropout_that_is_no_rate_is_refused(rate):
    with pytest.raises(AdapterError, match=r"lora: dropout is .*expected 0 <= rate < 1"):
        Lora(r=4, dropout=rate)


def test_numbers():
    assert all(map(is_number, (0, -1, 2.5, 10**300, 1e308)))
    assert Lora(r=4).alpha == 8
    assert Lora(r=4, alpha=2).scale == 0.5
    assert Lora(r=4, alpha=2, variant="rslora").scale == 1.0
