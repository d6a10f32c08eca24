"""A Flower project around a model: the files that `onnxgrad federated` writes."""

from __future__ import annotations

import base64
import json
import os
import re
from importlib import resources
from pathlib import Path

from onnxgrad.errors import FileError
from onnxgrad.files.text import read_json
from onnxgrad.files.write import write_bytes

FILES = {
    "pyproject.toml.txt": "pyproject.toml",
    "client_app.py.txt": "{package}/client_app.py",
    "server_app.py.txt": "{package}/server_app.py",
    "init.py.txt": "{package}/__init__.py",
    "README.md.txt": "README.md",
}


# Bytes of a model that travels with the app: Flower takes apps of up to 10 MB, of text files alone.
MOST = 7 << 20


def scaffold(folder: Path, model: bytes, path: str, loss: str, rounds: int) -> list[Path]:
    """Write the project with a copy of the model; return its files. Raises FileExistsError where one is there.

    A model that is too large for an app stays at `path`, which must then be the same on every machine.
    """
    package = re.sub(r"\W+", "_", folder.resolve().name).strip("_").lower() or "federated"
    package = f"app_{package}" if package[0].isdigit() else package
    carried = len(model) <= MOST
    place = 'onnxgrad.flower.unpacked(Path(__file__).with_name("model.json"))'
    if not carried:
        place = f"Path({str(Path(path).resolve())!r})  # on every machine"
    values = {
        "@PACKAGE@": package, "@NAME@": package.replace("_", "-"), "@LOSS@": loss, "@ROUNDS@": str(rounds),
        "@MODEL@": place,
    }  # fmt: skip
    texts = {}
    for source, target in FILES.items():
        text = (resources.files(__package__) / source).read_text(encoding="utf-8")
        for mark, value in values.items():
            text = text.replace(mark, value)
        texts[folder / target.format(package=package)] = text.encode()
    if carried:
        texts[folder / package / "model.json"] = packed(model)
    for file in texts:
        if file.exists():
            raise FileExistsError(f"{file} is there already: name another folder")
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, text)
    return list(texts)


def packed(model: bytes) -> bytes:
    """A model as JSON: a Flower app carries text files only."""
    return json.dumps({"onnx": base64.b64encode(model).decode()}).encode()


def unpacked(path: str | os.PathLike[str]) -> bytes:
    """The model that `packed` made JSON of."""
    found = read_json(Path(path))
    if not isinstance(found, dict) or not isinstance(found.get("onnx"), str):
        raise FileError(f"{path} holds no model, expected what onnxgrad federated writes")
    return base64.b64decode(found["onnx"])
