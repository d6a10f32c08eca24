"""Kinds of arguments that several subcommands take."""

from __future__ import annotations

import argparse


class CommandParser(argparse.ArgumentParser):
    """A parser that can be asked what it takes: `arguments` in their order, `commands` by name."""

    def __init__(self, *arguments, **more):
        self.arguments: list[argparse.Action] = []
        self.commands: dict[str, CommandParser] = {}
        super().__init__(*arguments, **more)

    def add_argument(self, *names, **more) -> argparse.Action:
        made = super().add_argument(*names, **more)
        self.arguments.append(made)
        return made

    def flags(self) -> set[str]:
        """Every name of every flag."""
        return {name for action in self.arguments for name in action.option_strings}


def at_least_one(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def shape_of_input(text: str) -> tuple[str, list[int]]:
    """The name of an input and its sizes: `image=8,3,320,320`."""
    name, mark, sizes = text.rpartition("=")
    parts = sizes.split(",")
    if not name or not mark or not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of an input and its sizes, as in x=8,3,320,320"
        )
    return name, [int(part) for part in parts]
