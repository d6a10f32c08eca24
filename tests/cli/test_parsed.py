"""Every flag, setting and public class takes what it took: types, defaults, choices, numbers of values.

After a change that is meant: `python tests/cli/parsed.py`, and read the difference.
"""

from __future__ import annotations

from cli.parsed import FILE, everything


def test_everything_takes_what_it_took():
    assert everything() == FILE.read_text(encoding="utf-8").splitlines()
