"""What all tests need of the process that runs them."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from hypothesis import settings

from onnxgrad import _native

# `make test` draws the same examples every time; `make check` says how many, and draws others each time.
WISHED = os.environ.get("ONNXGRAD_EXAMPLES")
settings.register_profile(
    "onnxgrad", max_examples=int(WISHED or 60), derandomize=WISHED is None, deadline=None
)
settings.load_profile("onnxgrad")


def pytest_configure(config):
    """Background jobs of a shell, and all that they start, ignore Ctrl-C; some tests send it to what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def unwritten_outputs_are_nan():
    """What a kernel does not write is then seen, in whatever test."""
    _native.fill_outputs_with(0xFF)


@pytest.fixture(autouse=True)
def same_random_numbers():
    """`onnxblock.blocks.Linear` draws its weights from NumPy's global generator, as the old package did."""
    np.random.seed(0)
