"""The learning rates of a run, from the flags --schedule, --every, --factor and --floor."""

from __future__ import annotations

from onnxgrad.errors import ConfigError
from onnxgrad.job.config import Config
from onnxgrad.notes import Note
from onnxgrad.train import schedules


def schedule_of(config: Config, validates: bool = True) -> schedules.Schedule:
    """The schedule that the flags mean; without validation a plateau is one of the training loss."""
    if config.floor > config.lr:
        raise ConfigError(
            f"--floor is {config.floor:g}, expected at most the learning rate, {config.lr:g}"
        )
    try:
        made = schedules.named(config.schedule, config.every, config.factor, config.floor)
    except ValueError as error:
        raise ConfigError(
            f"--{error}" if str(error).startswith("schedule") else str(error)
        ) from error
    if isinstance(made, schedules.ReduceOnPlateau) and not validates:
        made.monitor = "loss"
    return made


def plateau_notes(config: Config, validates: bool) -> list[Note]:
    """That a plateau is not one of the validation loss, as it usually is."""
    if config.schedule.lower() != "plateau" or validates:
        return []
    text = "--schedule plateau follows the training loss, because no rows are set aside"
    return [Note("schedule", config.data, text, "--val sets some aside")]
