"""How `inspect` writes numbers of bytes."""

from __future__ import annotations

import pytest

from onnxgrad.cli.inspect import size


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1000 bytes"), (1023, "1023 bytes"),
        (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (1 << 30, "1 GiB"),
        (5 << 40, "5 TiB"), (5000 << 40, "5000 TiB"),
    ],
)  # fmt: skip
def test_sizes(number, text):
    assert size(number) == text
