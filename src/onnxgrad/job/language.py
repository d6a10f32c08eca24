"""A run on language data: lines of JSON and a tokenizer.json become batches; the loss is of the next token."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxgrad.data.chat import CONFIG, Chat
from onnxgrad.data.language import IGNORED, Example, Language, is_language, read_examples, records
from onnxgrad.data.table import is_number
from onnxgrad.data.tokenizer import FILE, Tokenizer, tokenizer_beside
from onnxgrad.errors import ConfigError, DataError
from onnxgrad.files.models import ModelFile
from onnxgrad.files.paths import read_bytes
from onnxgrad.files.write import write_bytes
from onnxgrad.inspection.probe import first_load
from onnxgrad.inspection.reading import read as read_model
from onnxgrad.job.config import FIELDS, Config
from onnxgrad.job.folder import new_folder
from onnxgrad.job.outcome import Result
from onnxgrad.job.run import TrainingJob
from onnxgrad.job.schedule import plateau_notes
from onnxgrad.job.texts import split_names
from onnxgrad.model.past import is_past
from onnxgrad.notes import Note
from onnxgrad.train.losses import CrossEntropy
from onnxgrad.train.parallel import Communicator

LENGTH = 512  # tokens of a row, where nothing else is said
ANSWER = "target"
# What a run on tables, pictures or labels has, and this one has no use for.
_FOREIGN = (
    "target", "ignore", "categories", "standardize", "missing", "split", "folds", "repeat", "loss", "axis",
    "class_weights", "sample_weights", "label_smoothing", "ignore_index", "classes", "head_first", "quantize",
    "quantize_nodes", "quantize_scales",
)  # fmt: skip


def is_language_run(model: Any, config: Config) -> bool:
    """Say whether the data is text to continue, and the model one that says the next token."""
    path = Path(config.data)
    if path.suffix != ".jsonl" or not path.is_file() or config.target:
        return False
    record = next((record for _, record in records(path)), None)
    if is_language(record):
        return True
    alone = isinstance(record, dict) and isinstance(record.get("text"), str) and len(record) == 1
    return alone and bool(_scores(read_model(ModelFile.of(model))[1]))


def _scores(model: ir.Model) -> ir.Value | None:
    """The scores [rows, tokens, words] of a model that takes tokens."""
    takes_tokens = any(v.name == "input_ids" for v in model.graph.inputs)
    floats = (v for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point())
    first = next(floats, None)
    right = first is not None and first.shape is not None and len(first.shape) == 3
    return first if takes_tokens and right else None


@dataclass
class Text:
    """The files of a run on language data: the tokenizer, the examples, and what was found out."""

    tokenizer: Tokenizer
    inputs: tuple[str, ...]
    words: int | None  # the tokens that the model tells apart
    output: str
    length: int = LENGTH
    pack: bool = False
    notes: list[Note] = field(default_factory=list)

    @classmethod
    def open(cls, model: Any, config: Config) -> Text:
        """Find the tokenizer of a model, and see that it takes tokens and says the next one."""
        path = Path(config.tokenizer) if config.tokenizer else tokenizer_beside(model)
        if path is None:
            raise ConfigError(
                f"{config.data} holds text, and there is no {FILE} beside {model}: name one with --tokenizer"
            )
        graph = read_model(ModelFile.of(model))[1]
        scores = _scores(graph)
        if scores is None:
            raise DataError(
                f"{config.data} holds text to continue, and {model} is not a model for that: expected an input "
                "'input_ids' and an output [rows, tokens, words]"
            )
        with first_load(model):
            tokenizer = Tokenizer(path)
        own = graph.graph.initializers  # inputs with a default: what an adapter replaces
        inputs = tuple(v.name for v in graph.graph.inputs if not is_past(v) and v.name not in own)
        words = scores.shape[2] if isinstance(scores.shape[2], int) else None
        if words is not None and tokenizer.size > words:
            raise DataError(
                f"{path} has {tokenizer.size:,} tokens, and the model's output {scores.name!r} {words:,}: "
                "the tokenizer belongs to another model"
            )
        length = config.max_length or LENGTH
        found = cls(tokenizer, inputs, words, scores.name, length, config.pack)
        text = f"tokens: {path}, at most {length:,} in a row"
        found.notes.append(
            Note("tokens", str(path), text, "--tokenizer and --max-length take others")
        )
        return found

    def examples(self, path: str) -> list[Example]:
        """The examples of a file."""
        found = read_examples(path, self.tokenizer)
        if any("messages" in record for _, record in records(path) if isinstance(record, dict)):
            text = f"messages are written as {Chat(self.tokenizer).form}"
            self.notes.append(Note("messages", path, text))
        return found

    def batches(
        self, examples: list[Example], config: Config, *, shuffle: bool = False
    ) -> Language:
        """Examples as batches of this model."""
        return Language(
            examples, self.inputs, self.tokenizer.filler, ANSWER, config.batch_size, self.length,
            self.pack, shuffle, config.seed,
        )  # fmt: skip

    def metrics(self, chosen: str) -> list[str]:
        """The names of the metrics."""
        return list(split_names(chosen)) or ["perplexity"]

    def loss(self) -> dict[str, CrossEntropy]:
        """The loss of the next token."""
        return {self.output: CrossEntropy(ignore_index=IGNORED, axis=-1)}

    def write_beside(self, folder: Path) -> None:
        """Put the tokenizer beside a model or an adapter that was written, so that it can be used at once."""
        for name in (FILE, CONFIG):
            source = self.tokenizer.path.with_name(name) if name == CONFIG else self.tokenizer.path
            target = folder / name
            if source.exists() and not target.exists():
                write_bytes(target, read_bytes(source, "a tokenizer"))


class LanguageJob(TrainingJob):
    """As `TrainingJob`, for language data."""

    def __init__(
        self,
        model: str,
        config: Config,
        resume: Path | None = None,
        communicator: Communicator | None = None,
    ):
        if communicator is not None:
            raise ConfigError("language data is trained in one process: start without mpiexec")
        _refuse_foreign(config)
        model = self._begin(model, config, resume, None)
        self.prepared = text = Text.open(model, config)
        self.subject, self.changes, self.accumulate = model, [], self.config.accumulate
        self.comparison, self.loss = None, text.loss()
        self.data, self.validation = self._examples(text)
        self.validates = self.validation is not None
        self.trainer = self._trainer(text)
        self.notes = [
            *text.notes,
            *plateau_notes(config, self.validates),
            *self.data.notes,
            *self.trainer.notes,
        ]
        for batches in filter(None, (self.data, self.validation)):
            self.trainer.check(batches)
        if resume is None:  # last: a run that is refused leaves no folder
            self._take(lambda: new_folder(config, model))

    def _examples(self, text: Text) -> tuple[Language, Language | None]:
        """The examples to train on, and those to validate on."""
        config, found, held = self.config, text.examples(self.config.data), []
        if not is_number(config.val):
            held = text.examples(config.val)
            said = f"validation: the {len(held):,} examples of {config.val}"
            text.notes.append(Note("validation", config.val, said))
        elif float(config.val):
            share = float(config.val)
            if not 0 < share < 1:
                raise ConfigError(f"--val is {share:g}, expected a share from 0 to 1, or a file")
            count = max(1, round(len(found) * share))
            if count >= len(found):
                raise ConfigError(
                    f"--val is {share:g}, which leaves nothing of {len(found):,} examples to train on; 0 keeps all"
                )
            order = np.random.default_rng([config.seed, 7]).permutation(len(found))
            held = [found[i] for i in sorted(order[:count])]
            found = [found[i] for i in sorted(order[count:])]
            said = f"validation: {count:,} of the examples, set aside at random"
            text.notes.append(
                Note("validation", config.data, said, "--val takes another share, or a file")
            )
        data = text.batches(found, config, shuffle=True)
        longest = max(len(row.tokens) for row in data.laid)
        said = f"{len(found):,} examples, {data.learned:,} tokens to learn, the longest row has {longest:,}"
        text.notes.append(Note("examples", config.data, said))
        return data, text.batches(held, config) if held else None

    def _look(self, result: Result, held: Language) -> None:
        """There are no classes that could be taken for each other."""

    def _metadata(self) -> dict[str, str] | None:
        return None

    def _save(self) -> None:
        super()._save()
        output = Path(self.config.output)
        self.prepared.write_beside(output if output.is_dir() else output.parent)


def _refuse_foreign(config: Config) -> None:
    for name in _FOREIGN:
        if getattr(config, name) != FIELDS[name].default:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} has no meaning for language data, {config.data}")


def generated(prompts: list[str], answers: list[str]) -> bytes:
    """Prompts and what a model made of them, as lines of JSON."""
    lines = (
        json.dumps({"prompt": prompt, "completion": answer}, ensure_ascii=False)
        for prompt, answer in zip(prompts, answers, strict=True)
    )
    return "".join(f"{line}\n" for line in lines).encode()
