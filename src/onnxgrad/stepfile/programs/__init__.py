"""Small, complete programs that train with the files of a step, to start from."""

from __future__ import annotations

import json
from importlib import resources

from onnxgrad.stepfile.graph import Description

# language -> template, and the name of the program for a step file `STEM.onnx`
PROGRAMS = {"js": ("train.mjs", "{stem}.train.mjs")}


def program(language: str, stem: str, description: Description) -> tuple[str, str]:
    """Return the file name and the text of the program in a language.

    Raises ValueError for a language that has none.
    """
    if language not in PROGRAMS:
        raise ValueError(f"emit is {language!r}, expected one of {', '.join(PROGRAMS)}")
    template, name = PROGRAMS[language]
    text = (resources.files(__package__) / template).read_text(encoding="utf-8")
    for mark, value in {
        "@STEM@": stem,
        "@DESCRIPTION@": json.dumps(description.as_dict(), indent=2),
    }.items():
        text = text.replace(mark, value)
    return name.format(stem=stem), text
