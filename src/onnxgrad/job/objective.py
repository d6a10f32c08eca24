"""The losses of a run as objects: class weights, ignored labels, smoothing, weights of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxgrad.data.augment import Augment
from onnxgrad.data.goals import LABELLED
from onnxgrad.data.ragged import IGNORED
from onnxgrad.data.table import is_number
from onnxgrad.data.texts import is_ragged
from onnxgrad.errors import ConfigError
from onnxgrad.job.config import Config
from onnxgrad.job.prepare import Prepared
from onnxgrad.job.texts import split_names
from onnxgrad.notes import Note
from onnxgrad.train import losses
from onnxgrad.train.row_losses import RowWeighted, SoftCrossEntropy


class Objective:
    """What `Trainer(loss=...)` gets; `notes` say what was worked out."""

    def __init__(self, prepared: Prepared, config: Config, rows: np.ndarray | None):
        self.prepared, self.config, self.rows = prepared, config, rows
        self.notes: list[Note] = []

    def losses(self) -> Any:
        """The losses by output; a name where nothing more is said, and None for a model's own."""
        named, config = self.prepared.losses, self.config
        if named is None:
            self._refuse_settings()
            return losses.with_axis(None, config.axis)
        self._check_settings(set(named.values()))
        made = {output: self._loss(output, name) for output, name in named.items()}
        plain = all(isinstance(loss, str) for loss in made.values())
        if len(made) == 1 and plain and not config.model_output and "=" not in config.loss:
            return next(iter(made.values()))
        return made

    def _settings(self) -> dict[str, Any]:
        c = self.config
        found: dict[str, Any] = {
            "--class-weights": c.class_weights, "--label-smoothing": c.label_smoothing,
            "--sample-weights": c.sample_weights,
        }  # fmt: skip
        found["--ignore-index"] = c.ignore_index
        return {flag: value for flag, value in found.items() if value not in ("", 0.0)}

    def _refuse_settings(self) -> None:
        for flag in self._settings():
            raise ConfigError(f"{flag} is for a loss of targets, and the model computes its own")

    def _check_settings(self, names: set[str]) -> None:
        labels = names & set(LABELLED)
        for flag in self._settings():
            if flag in ("--label-smoothing", "--ignore-index") and not labels:
                raise ConfigError(
                    f"{flag} is for losses of classes, not for {', '.join(sorted(names))}"
                )
            if flag == "--class-weights" and not labels and "bce" not in names:
                raise ConfigError(f"{flag} is for classes, not for {', '.join(sorted(names))}")

    def _loss(self, output: str, name: str) -> Any:
        if name not in losses.NAMES:
            raise ConfigError(f"--loss is {name!r}, expected one of {', '.join(losses.NAMES)}")
        settings = self._class_settings(output, name)
        loss: Any = losses.NAMES[name](**settings) if settings else name
        loss = losses.with_axis(loss, self.config.axis)
        if self.mixed and name in LABELLED:
            if name != "cross_entropy":
                raise ConfigError(f"--augment mixup needs the loss cross_entropy, and it is {name}")
            loss = SoftCrossEntropy(**settings)
        if self.config.sample_weights:
            loss = RowWeighted(losses.NAMES[name]() if isinstance(loss, str) else loss)
        return loss

    @property
    def ignored(self) -> int | None:
        """The label that counts nothing; places without a tag have -100."""
        text = self.config.ignore_index
        if not text:
            return IGNORED if self.prepared.tagged else None
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"--ignore-index is {text!r}, expected a whole number") from None

    @property
    def mixed(self) -> bool:
        """Whether targets are shares of classes, because pictures are mixed."""
        return Augment.parse(self.config.augment).mixup > 0

    def _class_settings(self, output: str, name: str) -> dict[str, Any]:
        c, found = self.config, {}
        if name == "bce" and c.class_weights:
            found["pos_weight"] = self._yes_weights(output)
        if name in LABELLED:
            if c.class_weights:
                found["weight"] = self._weights(output)
            if self.ignored is not None:
                found["ignore_index"] = self.ignored
            if c.label_smoothing:
                found["label_smoothing"] = c.label_smoothing
        return found

    # ---- weights of classes ------------------------------------------------------------------

    def _targets(self, output: str) -> np.ndarray:
        """The targets of the training rows: [N], or [N, columns]."""
        matched, table = self.prepared.matched, self.prepared.table
        columns = dict(zip(self.prepared.losses, matched.targets.values(), strict=True))[output]
        if is_ragged(table, columns[0]):
            return table.arrays[columns[0]].flat(self.rows)
        parts = [table.column(name) for name in columns]
        made = parts[0] if len(parts) == 1 else np.stack(parts, 1)
        return made if self.rows is None else made[self.rows]

    def _numbered(self, words: np.ndarray) -> np.ndarray:
        """Labels as the numbers of their classes, whose order may be any; unknown ones count nothing."""
        numbers = {word: i for i, word in enumerate(self.prepared.matched.classes)}
        return np.array([numbers.get(str(word), -1) for word in words])

    def _weights(self, output: str) -> list[float]:
        """balanced: n / (classes·n_c), as scikit-learn's."""
        classes, text = self.prepared.matched.classes, self.config.class_weights
        shape = self.prepared.judged(output).shape
        wide = shape is not None and len(shape) == 2 and isinstance(shape[1], int)
        size = shape[1] if wide else len(classes) or int(self._targets(output).max()) + 1
        if text != "balanced":
            return self._given(classes or [str(i) for i in range(size)], size)
        labels = self._targets(output)
        if labels.dtype.kind in "US":
            labels = self._numbered(labels)
        if labels.dtype.kind not in "iu" and not (labels == np.floor(labels)).all():
            raise ConfigError("--class-weights balanced needs labels of classes")
        labels = labels.ravel().astype(np.int64)
        used = labels[(labels >= 0) & (labels != (-1 if self.ignored is None else self.ignored))]
        counts = np.bincount(used, minlength=size)[:size]
        weights = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
        weights[counts == 0] = 0.0
        named = [classes[i] if i < len(classes) else str(i) for i in range(size)]
        shown = ", ".join(f"{n} {w:.3g}" for n, w in list(zip(named, weights, strict=True))[:8])
        text = f"class weights, balanced: {shown}{' …' if size > 8 else ''}"
        self.notes.append(Note("class weights", output, text))
        return [float(w) for w in weights]

    def _given(self, names: list[str], size: int) -> list[float]:
        parts = split_names(self.config.class_weights)
        if all(is_number(part) for part in parts) and len(parts) == size:
            return [float(part) for part in parts]
        weights = dict.fromkeys(names, 1.0)
        for part in parts:
            name, _, number = part.rpartition("=")
            if name not in weights or not is_number(number):
                raise ConfigError(
                    f"--class-weights is {self.config.class_weights!r}, expected balanced, {size} numbers, or "
                    f"name=number for some of {', '.join(names[:8])}"
                )
            weights[name] = float(number)
        return list(weights.values())

    def _yes_weights(self, output: str) -> list[float]:
        """balanced: how many no there are for a yes, of every column."""
        text = self.config.class_weights
        if text != "balanced":
            parts = split_names(text)
            if not all(is_number(part) for part in parts):
                raise ConfigError(
                    f"--class-weights is {text!r}, expected balanced, or what a yes counts, a number for each column"
                )
            return [float(part) for part in parts]
        targets = self._targets(output)
        if targets.dtype.kind in "US":
            targets = self._numbered(targets)
        yes = (targets.reshape(len(targets), -1) > 0.5).mean(0)
        weights = np.where(yes > 0, (1 - yes) / np.maximum(yes, 1e-9), 1.0)
        shown = ", ".join(f"{w:.3g}" for w in weights[:8])
        text = f"class weights, balanced: a yes counts {shown} times as much as a no"
        self.notes.append(Note("class weights", output, text))
        return [float(w) for w in weights]
