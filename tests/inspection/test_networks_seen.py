"""`inspect` sees in exported networks what was written down of them: every tensor with its role, costs, notes.

After a change that is meant: `python tests/inspection/seen.py`, and read the difference.
"""

from __future__ import annotations

import pytest
from inspection.seen import EXPORTERS, NAMES, recorded, seen


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_seen_is_seen_again(name, exporter):
    assert seen(name, exporter) == recorded()[name, exporter]
