"""The model card: a head that a hub reads, below it what a person asks; and what --push uploads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxgrad
from onnxgrad.errors import FileError
from onnxgrad.files import hub
from onnxgrad.files.models import data_files
from onnxgrad.files.paths import printable
from onnxgrad.files.text import read_json
from onnxgrad.job.config import command
from onnxgrad.texts import grouped

if TYPE_CHECKING:
    from onnxgrad.job.outcome import Result

CARD = "README.md"
BESIDE = (
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)


def card(result: Result) -> str:
    """The card of a finished run."""
    import yaml

    output = Path(result.config.output)
    head = yaml.safe_dump(front(result), sort_keys=False, allow_unicode=True)
    rows = [
        f"| {_text(name)} | {_number(before)} | {_number(result.after.get(name, math.nan))} |"
        for name, before in result.before.items()
    ]
    lines = [
        f"# {_text(output.name)}", "",
        f"`{_text(result.model)}`, trained with [onnxgrad](https://pypi.org/project/onnxgrad/) {onnxgrad.__version__}. "
        "It is an ONNX file and runs in any onnxruntime.", "",
        "| | before | after |", "|---|---|---|", *rows, "",
        f"{len(result.epochs)} epochs, {result.trained_steps:,} steps. The command:", "",
        "```sh", printable(command(result.model, result.config)), "```", "",
    ]  # fmt: skip
    names = result.judged.names if result.judged else []
    if names:
        lines += ["Classes: " + ", ".join(_text(name) for name in names[:100]) + ".", ""]
    if result.notes:
        lines += [
            "What was decided on the way:",
            "",
            *(f"- {_text(note)}" for note in result.notes),
            "",
        ]
    return f"---\n{head}---\n\n" + "\n".join(lines)


def front(result: Result) -> dict[str, Any]:
    """What the hub reads: the base model, how this one comes from it, and its scores."""
    found: dict[str, Any] = {"library_name": "onnx", "tags": ["onnx", "onnxgrad"]}
    if hub.is_hub(result.model):
        found["base_model"] = hub.parse(result.model).repository
        found["base_model_relation"] = _relation(result)
    scores = {k: v for k, v in result.after.items() if math.isfinite(v)}
    found["metrics"] = [name for name in scores if name != "loss"]
    listed = [{"type": name, "value": round(float(value), 6)} for name, value in scores.items()]
    dataset = {"name": Path(result.config.data).name, "type": "custom"}
    task = {"type": "other"}
    found["model-index"] = [
        {
            "name": Path(result.config.output).stem,
            "results": [{"task": task, "dataset": dataset, "metrics": listed}],
        }
    ]
    return found


def _relation(result: Result) -> str:
    c = result.config
    if (c.lora or c.lora_from) and not c.merge:
        return "adapter"
    return "quantized" if c.quantize else "finetune"


def _text(value: object) -> str:
    """A name from a file as text of a table: no line, no cell and no tag ends in it."""
    text = printable(value).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return text.replace("`", "'")


def _number(value: float) -> str:
    return grouped(value, 4) if math.isfinite(value) else "–"


# ---- the hub


def upload(result: Result) -> str:
    """Push the tuned model, its external weights, what lies beside it, its classes and its card; return the address."""
    output = Path(result.config.output)
    files: dict[str, bytes | Path] = {}
    if output.is_dir():  # an adapter
        files = {path.name: path for path in sorted(output.iterdir()) if path.is_file()}
    else:
        for path in (*data_files(output), output):
            files[f"onnx/{path.name}"] = path
        for name in BESIDE:
            if (output.parent / name).is_file():
                files[name] = output.parent / name
    config = _config(result)
    if config:
        files["config.json"] = (json.dumps(config, indent=2) + "\n").encode()
    files[CARD] = card(result).encode()
    return hub.push(result.config.push, files, f"onnxgrad {onnxgrad.__version__}: {output.name}")


def _config(result: Result) -> dict[str, Any]:
    """The base model's config.json, where one lies beside it, with the names of the classes that were trained."""
    found: Mapping[str, Any] = {}
    for folder in _folders(result):
        if (folder / "config.json").is_file():
            try:
                read = read_json(folder / "config.json")
            except (FileError, ValueError, OSError):
                continue
            found = read if isinstance(read, dict) else {}
            break
    names = result.judged.names if result.judged else []
    if not names:
        return dict(found)
    numbers = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
    return {**found, **numbers}


def _folders(result: Result) -> list[Path]:
    folder = (hub.local(result.model) if hub.is_hub(result.model) else Path(result.model)).parent
    return [folder, folder.parent] if folder.name == "onnx" else [folder]
