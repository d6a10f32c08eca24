"""What `onnxgrad predict` does with a language model: continue prompts, for a person to read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from onnxgrad.cli.texts import plain
from onnxgrad.data.language import generate, read_prompts
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.write import check_target, write_bytes
from onnxgrad.job.config import Config

ADAPTER = "adapter.onnx_adapter"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that only language models have."""
    group = parser.add_argument_group("language models")
    group.add_argument("--prompt", action="append", default=[], help="a text to continue")
    group.add_argument("--tokens", type=int, default=40, metavar="N", help="tokens at most")
    group.add_argument(
        "--tokenizer",
        default="",
        metavar="FILE",
        help="a tokenizer.json (default: beside the model)",
    )
    group.add_argument(
        "--adapter", default="", metavar="FILE", help="an .onnx_adapter for a model that takes one"
    )


def model_and_adapter(options: argparse.Namespace) -> tuple[Path, Path | None]:
    """The model file, and the adapter; a folder that `train --lora` wrote has both."""
    model, adapter = Path(options.model), options.adapter
    if model.is_dir():
        if not (model / "model.onnx").exists():
            raise ConfigError(f"{model} is a folder without a model.onnx")
        adapter = adapter or (model / ADAPTER if (model / ADAPTER).exists() else "")
        model = model / "model.onnx"
    return model, Path(adapter) if adapter else None


def is_wanted(options: argparse.Namespace, model: Path) -> bool:
    """Say whether the model is to continue texts."""
    from onnxgrad.job.language import is_language_run

    return bool(options.prompt) or is_language_run(model, Config(data=options.data))


def generate_lines(options: argparse.Namespace, model: Path, adapter: Path | None) -> None:
    """Print prompts and what the model makes of them; write them as lines of JSON where -o says so."""
    from onnxgrad.job.language import Text, generated

    output = Path(options.output) if options.output else None
    if output is not None and output.suffix != ".jsonl":
        raise DataError(
            f"-o {output} ends in '{output.suffix}', expected .jsonl for generated text"
        )
    if output is not None:
        check_target(output, model, *filter(None, [options.data]))
    if not 1 <= options.tokens <= 100_000:
        raise ConfigError(f"--tokens is {options.tokens}, expected at least 1 and at most 100,000")
    text = Text.open(model, Config(data=options.data or "--prompt", tokenizer=options.tokenizer))
    prompts = [*options.prompt]
    if options.data:
        prompts += read_prompts(options.data, text.tokenizer)
    run = runner(model, adapter, text.output)
    answers = []
    for prompt in prompts:
        answers.append(generate(run, text.tokenizer, prompt, text.inputs, options.tokens))
        print(plain(f"{prompt}\n  → {answers[-1]}"))
    if output is not None:
        write_bytes(output, generated(prompts, answers))
        print(f"wrote {output}: {len(answers)} lines")


def runner(
    model: Path, adapter: Path | None, output: str
) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """A function from the arrays of a batch to scores; past keys and values are empty."""
    import onnxruntime

    from onnxgrad.model.lora import ort_file
    from onnxgrad.train.files.verify import empty_pasts

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # a warning for every tensor that an adapter may replace
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    settings = loaded = None
    if adapter is not None:
        ort_file.read(adapter)  # refuses what would make an older onnxruntime write out of bounds
        loaded = onnxruntime.LoraAdapter()
        loaded.Load(str(adapter))
        settings = onnxruntime.RunOptions()
        settings.add_active_adapter(loaded)

    def run(arrays: dict[str, np.ndarray]) -> np.ndarray:
        feeds = {**arrays, **empty_pasts(session, arrays)}
        try:
            return session.run([output], feeds, settings)[0]
        except Exception as error:
            if adapter is None or "Invalid input name" not in str(error):
                raise
            raise DataError(
                f"{adapter} does not belong to {model}: it has tensors that the model does not take"
            ) from error

    run.adapter = loaded  # run options hold no reference to it
    return run
