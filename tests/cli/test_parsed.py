"""Every flag takes what it took: its type, default, choices and number of values.

After a change that is meant: `python tests/cli/parsed.py`, and read the difference.
"""

from __future__ import annotations

from cli.parsed import FILE, parsed


def test_every_flag_takes_what_it_took():
    assert parsed() == FILE.read_text(encoding="utf-8").splitlines()
