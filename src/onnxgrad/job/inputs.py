"""How pictures, sounds and texts become what a model takes: by flags, by the model's metadata, by files beside it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxgrad.data.forms import KEY, Forms
from onnxgrad.data.images import PictureForm
from onnxgrad.data.matched import Matched
from onnxgrad.data.preprocessor import CONFIG, read_config
from onnxgrad.data.sounds import SoundForm
from onnxgrad.data.table import is_number
from onnxgrad.data.texts import TextForm
from onnxgrad.data.tokenizer import FILE, Tokenizer, length_beside, tokenizer_beside
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.paths import inside, is_path
from onnxgrad.files.text import read_text
from onnxgrad.files.write import write_bytes
from onnxgrad.job.config import INPUT_FLAGS
from onnxgrad.job.texts import split_names
from onnxgrad.notes import Note

# Mean and deviation of the pictures of ImageNet, as most classifiers were trained with.
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def read_forms(path: Any, original: ir.Model, flags: Mapping[str, Any]) -> Forms:
    """What is known of a model's inputs; a flag wins over the model, the model over the files beside it."""
    stored = original.metadata_props.get(KEY)
    base = Forms()
    folder = Path(path).parent if is_path(path) else None
    if stored:
        base = Forms.from_json(stored)
        kinds = ("pictures", "sounds", "texts")
        base = replace(base, origin=dict.fromkeys(kinds, "as in the training of the model"))
    elif folder is not None:
        base = _beside(path, folder)
    pictures, sounds = _pictures(base.pictures, flags), _sounds(base.sounds, flags)
    texts, tokenizer = _texts(path, base.texts, flags)
    constants = {**base.constants, **_constants(flags.get("constant", ""))}
    origin = {k: v for k, v in base.origin.items() if not set(OF_KIND[k]) & set(flags)}
    return Forms(pictures, sounds, texts, constants, origin, tokenizer)


def _beside(path: Any, folder: Path) -> Forms:
    places = [folder, *([folder.parent] if folder.name == "onnx" else [])]
    file = next((p / CONFIG for p in places if (p / CONFIG).is_file()), None)
    if file is None:
        return Forms()
    pictures, sounds = read_config(file)
    origin = {
        "pictures": f"by {CONFIG} beside the model",
        "sounds": f"by {CONFIG} beside the model",
    }
    return Forms(pictures or PictureForm(), sounds or SoundForm(), origin={
        k: v for k, v in origin.items() if (pictures if k == "pictures" else sounds) is not None
    })  # fmt: skip


# ---- flags


def _pictures(form: PictureForm, flags: Mapping[str, Any]) -> PictureForm:
    found: dict[str, Any] = {}
    if "resize" in flags:
        found["resize"] = _sides("--resize", flags["resize"])
        found["crop"] = ()  # of the model's own recipe: another size has another one
    if "crop" in flags:
        sides = _sides("--crop", flags["crop"])
        found["crop"] = sides * 2 if len(sides) == 1 else sides
    for name in ("mean", "std"):
        if name in flags:
            found[name] = (
                IMAGENET[name] if flags[name] == "imagenet" else _numbers(name, flags[name])
            )
    if any(number <= 0 for number in found.get("std", ())):
        raise ConfigError(f"--std is {flags['std']!r}, expected numbers above 0")
    if "rescale" in flags:
        found["rescale"] = _rescale(flags["rescale"])
    if flags.get("channels_last"):
        found["channels_last"] = True
    return replace(form, **found)


def _sides(flag: str, text: str) -> tuple[int, ...]:
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
        raise ConfigError(f"{flag} is {text!r}, expected pixels such as 224, or HEIGHTxWIDTH")
    return tuple(int(p) for p in parts)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    parts = split_names(text)
    if not parts or not all(is_number(p) and math.isfinite(float(p)) for p in parts):
        raise ConfigError(f"--{name} is {text!r}, expected imagenet, or a number for each channel")
    return tuple(float(p) for p in parts)


def _rescale(text: str) -> float:
    above, slash, below = text.partition("/")
    parts = [above, below] if slash else [above]
    if not all(is_number(p) and math.isfinite(float(p)) and float(p) != 0 for p in parts):
        raise ConfigError(
            f"--rescale is {text!r}, expected what bytes are multiplied by: 1, 1/255, 0.0078"
        )
    return float(above) / float(below) if slash else float(above)


def _sounds(form: SoundForm, flags: Mapping[str, Any]) -> SoundForm:
    rate = flags.get("sample_rate", form.rate)
    if "seconds" not in flags:
        return replace(form, rate=rate)
    if rate is None:
        raise ConfigError(
            "--seconds needs --sample-rate: how many samples a second the model takes"
        )
    return replace(form, rate=rate, length=max(1, round(flags["seconds"] * rate)))


def _texts(
    path: Any, form: TextForm, flags: Mapping[str, Any]
) -> tuple[TextForm, Callable[[], Tokenizer] | None]:
    """The form, and what reads the tokenizer: nobody needs the package where no text is."""
    file = _tokenizer_file(path, form, flags)
    columns = split_names(flags.get("text", "")) or form.columns
    if len(columns) > 2:
        raise ConfigError(f"--text names {len(columns)} columns, expected one, or two for a pair")
    if file is None:
        return replace(form, columns=columns), None
    length = flags.get("max_length", form.length) or length_beside(file)
    return TextForm(str(file), length, columns), functools.cache(lambda: Tokenizer(file))


def _tokenizer_file(path: Any, form: TextForm, flags: Mapping[str, Any]) -> Path | None:
    if "tokenizer" in flags:
        file = Path(flags["tokenizer"])
        return file / FILE if file.is_dir() else file
    if not is_path(path):
        return None
    if form.tokenizer:  # a name that the model gives: it must lie beside it
        inside(form.tokenizer, Path(path).parent)
        return Path(path).parent / form.tokenizer
    return tokenizer_beside(path)


def _constants(text: str) -> dict[str, float]:
    found = {}
    for part in split_names(text):
        name, _, number = part.rpartition("=")
        if not name or not is_number(number):
            raise ConfigError(
                f"--constant is {text!r}, expected input=number, several separated by commas"
            )
        found[name.strip()] = float(number)
    return found


OF_KIND = {"pictures": INPUT_FLAGS[:6], "sounds": INPUT_FLAGS[6:8], "texts": INPUT_FLAGS[8:11]}


def check_flags(flags: Mapping[str, Any], matched: Matched) -> None:
    """Refuse flags for what the data do not have, and constants for inputs that the model does not have."""
    for kind, names in OF_KIND.items():
        for name in names:
            if name in flags and kind not in matched.kinds:
                flag, what = f"--{name.replace('_', '-')}", kind.replace("texts", "text")
                raise ConfigError(f"{flag} is for {what}, and the data have none")
    for name in _constants(flags.get("constant", "")):
        if name not in matched.inputs:
            listed = ", ".join(map(repr, matched.inputs))
            raise ConfigError(
                f"--constant: the model has no input {name!r}; its inputs are {listed}"
            )


# ---- what is written


def kept(matched: Matched, output: str, write: bool = True) -> tuple[dict[str, str], list[Note]]:
    """The metadata that say how inputs were made, and notes; a tokenizer is put beside the model.

    `write`: whether this process is the one of several that writes files.
    """
    forms, notes = matched.forms, []
    if not matched.kinds and not forms.constants:
        return {}, []
    if "texts" in matched.kinds:
        name = _keep_tokenizer(forms.tokenizer(), Path(output), notes, write)
        forms = replace(forms, texts=replace(forms.texts, tokenizer=name))
    what = ", ".join(sorted(matched.kinds)) or "constants"
    text = f"the written model remembers how its inputs are made ({what}): eval and predict need no flags for that"
    notes.append(Note("inputs", output, text))
    return {KEY: forms.to_json(matched.kinds)}, notes


def _keep_tokenizer(tokenizer: Tokenizer, output: Path, notes: list[Note], write: bool) -> str:
    """Put a copy beside the model, unless it lies there; return its name."""
    for name in (FILE, f"{output.stem}.{FILE}"):
        file = output.parent / name
        if not file.exists():
            if write:
                write_bytes(file, tokenizer.content.encode())
            text = f"{file}: a copy of the tokenizer, for whoever uses the model"
            notes.append(Note("tokenizer", name, text))
            return name
        if read_text(file) == tokenizer.content:
            return name
    raise DataError(f"{file} is not the tokenizer of this training; move it away")
