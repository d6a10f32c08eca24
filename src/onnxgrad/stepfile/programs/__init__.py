"""Small, complete programs that train with the files of a step, to start from."""

from __future__ import annotations

import json
import re
from importlib import resources

from onnxgrad.stepfile.graph import Description

# language -> its files: a resource of the package, and the name beside a step file `STEM.onnx`
PROGRAMS = {
    "js": {"train.mjs": "{stem}.train.mjs"},
    "web": {"train.html": "{stem}.train.html"},
    "cpp": {"train.cpp": "{stem}.train.cpp", "../../include/onnxgrad/step.h": "onnxgrad/step.h"},
    "java": {"Train.java": "{name}.java"},
    "csharp": {"Train.cs": "{stem}.train.cs"},
}


def programs(language: str, stem: str, about: Description) -> dict[str, str]:
    """Return the files of the program in a language, as text by name; the program itself is the first.

    Raises ValueError for a language that has none.
    """
    if language not in PROGRAMS:
        raise ValueError(f"emit is {language!r}, expected one of {', '.join(PROGRAMS)}")
    name = "".join(p.capitalize() for p in re.split(r"\W+", stem)) + "Train"
    name = name if name[0].isalpha() else f"Step{name}"
    values = {
        "@TRAINING@": _resource("train.js") if language in ("js", "web") else "",
        "@STEM@": stem,
        "@CLASS@": name,
        "@DESCRIPTION@": json.dumps(about.as_dict(), indent=2),
        "@NAMES@": _listed([*about.batch, *about.targets]),
        "@TRAINED@": _listed([*about.parameters, *about.statistics]),
        "@STATE@": _listed(about.state),
        "@DROPOUT@": "true" if "dropout/key" in about.settings else "false",
        "@LOSS@": about.loss,
        "@LR@": repr(float(about.lr)),
    }
    found = {}
    for source, target in PROGRAMS[language].items():
        text = _resource(source)
        for mark, value in values.items() if not source.endswith(".h") else ():
            text = text.replace(mark, value)
        found[target.format(stem=stem, name=name)] = text
    return found


def _resource(name: str) -> str:
    place = resources.files("onnxgrad") / "stepfile" / "programs"
    if name.startswith("../../"):
        place, name = resources.files("onnxgrad"), name.removeprefix("../../")
    return place.joinpath(*name.split("/")).read_text(encoding="utf-8")


def _listed(names: list[str]) -> str:
    return ", ".join(json.dumps(n, ensure_ascii=False) for n in names)
