"""Kinds of arguments that several subcommands take."""

from __future__ import annotations

import argparse


def at_least_one(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)
