"""The run folder and the output: where a run writes, what it must not touch, and that nobody else writes there."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shlex
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from onnxgrad.errors import ConfigError, FileError
from onnxgrad.files.lock import Lock
from onnxgrad.files.models import data_files
from onnxgrad.files.paths import inside, printable
from onnxgrad.files.text import read_json
from onnxgrad.files.write import check_target, write_bytes
from onnxgrad.job.config import Config, checked, dump
from onnxgrad.train.files.adapter import FILES as ADAPTER_FILES

ARGUMENTS = "args.json"


def saved_arguments(folder: Path) -> dict[str, Any]:
    """The model and the settings of an earlier run."""
    try:
        found = read_json(folder / ARGUMENTS)
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, expected settings")
        if not isinstance(found.get("model", ""), str):
            raise ValueError("its model is not text")
        settings = [
            checked(str(folder / ARGUMENTS), k, v) for k, v in found.items() if k != "model"
        ]
        return {"model": found.get("model"), **dict(settings)}
    except OSError:
        raise ConfigError(
            f"--resume {folder} is not a run folder: it has no {ARGUMENTS}. Name a folder such as runs/model-1"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{folder / ARGUMENTS} is damaged: {error}") from error


def check_saved(folder: Path, config: Config, said: Collection[str]) -> None:
    """Refuse an output or an upload that only the run folder names, where a folder from a stranger could do harm.

    `said` are the settings that a person gave beside it.
    """
    if config.push and "push" not in said:
        raise ConfigError(
            f"{folder / ARGUMENTS} would upload the model to {printable(config.push)}. If it belongs there, say so: "
            f"{resume_line(folder, config)}; --push '' leaves it here"
        )
    if "output" not in said and not _harmless(folder, config):
        raise ConfigError(
            f"{folder / ARGUMENTS} names the output {printable(config.output)}, which lies outside this folder or "
            f"is not called .onnx. If it belongs there, say so: {resume_line(folder, config)}"
        )


def resume_line(folder: Path, config: Config) -> str:
    """The command that continues a run; it repeats what is not taken from the run folder."""
    line = f"onnxgrad train --resume {shlex.quote(str(folder))}"
    if not _harmless(folder, config):
        line += f" -o {shlex.quote(printable(config.output))}"
    return line + (f" --push {shlex.quote(printable(config.push))}" if config.push else "")


def _harmless(folder: Path, config: Config) -> bool:
    """Whether an output lies in the current folder or the run's, called like a model; an adapter may have any name."""
    real = Path(os.path.realpath(config.output))
    homes = [Path(os.path.realpath(home)) for home in (".", folder)]
    adapter = bool(config.lora or config.lora_from) and not config.merge
    called = not real.name.startswith(".") and (adapter or real.suffix == ".onnx")
    return called and any(home in real.parents for home in homes)


def write_arguments(folder: Path, model: str, config: Config) -> None:
    """The settings as YAML, to begin another run with, and as JSON, to continue this one."""
    text = f"# onnxgrad train {printable(model)} --config args.yaml\n{dump(config)}"
    write_bytes(folder / "args.yaml", text.encode(errors="replace"))
    arguments = {"model": str(model), **dataclasses.asdict(config)}
    write_bytes(folder / ARGUMENTS, (json.dumps(arguments, indent=1) + "\n").encode())


def check_output(config: Config, model: str, *, adapter: bool) -> None:
    """Refuse what could not be written, or must not be replaced, before hours of training.

    `adapter`: the output is a folder with an adapter in it.
    """
    output, path = config.output, Path(config.output)
    if not output.isascii() and printable(output) != output:
        raise ConfigError(
            f"-o {printable(output)} has bytes that are not text: onnxruntime opens no such file"
        )
    if adapter:
        if path.suffix == ".onnx":
            raise ConfigError(
                f"-o {output} names a model, and --lora writes a folder: name a folder, or add --merge"
            )
        if path.is_file():
            raise ConfigError(f"-o {output} is a file, and --lora writes a folder")
    written = [path / name for name in ADAPTER_FILES] if adapter else [path]
    for target in written:
        if target.exists() and Path(model).exists() and target.samefile(model):
            raise ConfigError(f"-o {output} is the model itself: name another file")
        try:
            check_target(target, config.data, config.val, *data_files(model))
        except (FileError, IsADirectoryError) as error:
            raise ConfigError(f"-o {error}") from error
    path = written[0] if path.is_dir() else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigError(f"-o {output} cannot be written: {error.strerror or error}") from error


def check_folder(config: Config) -> None:
    """Refuse a --run-dir that holds something else, before anything is read."""
    folder = Path(config.run_dir)
    if config.run_dir and folder.exists() and not folder.is_dir():
        raise ConfigError(f"--run-dir {folder} is a file, expected the name of a folder")
    if config.run_dir and (folder / ARGUMENTS).exists():
        raise ConfigError(
            f"--run-dir {folder} holds a run already: continue it with --resume {folder}, or name another folder"
        )


def new_folder(config: Config, model: str) -> tuple[Path, Lock]:
    """Make the folder of a new run, and take it: two runs that start together get two."""
    if config.run_dir:
        folder = Path(config.run_dir)
        folder.mkdir(parents=True, exist_ok=True)
        lock = take(folder)
        check_folder(config)  # again, now that nobody else can begin here
        return folder, lock
    stem = Path(model).stem
    for number in itertools.count(1):
        folder = Path("runs") / f"{stem}-{number}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mkdir(folder)
        except FileExistsError:
            continue
        return folder, take(folder)
    raise AssertionError("unreachable")


def inside_of(folder: Path, path: Path) -> None:
    """Refuse a folder that is a link out of the run folder: what is written or removed there is not the run's."""
    try:
        inside(os.path.relpath(path, folder), folder)
    except FileError as error:
        raise ConfigError(f"{folder}: {error}; a run keeps to its own folder") from error


def take(folder: Path) -> Lock:
    """Keep other runs out of a folder for as long as this process lives. Raises ConfigError where it cannot be used."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            inside_of(folder, Path(place, name))
    try:
        return Lock(folder)
    except BlockingIOError:
        raise ConfigError(f"{folder} is in use by another run; wait for it, or stop it") from None
