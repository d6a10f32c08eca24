"""The exceptions of onnxgrad. Each message says who, what came, what was expected, what to do."""


class OnnxGradError(Exception):
    """Base of every error that onnxgrad raises on purpose."""


class ContractError(OnnxGradError, ValueError):
    """An operator was called with a shape, type or attribute that its contract does not allow."""


class GradientError(OnnxGradError):
    """A model cannot be differentiated; the message names every node that stands in the way."""


class ModelError(OnnxGradError, ValueError):
    """There is no model to work with: a file that is missing, damaged or something else."""


class FileError(OnnxGradError, ValueError):
    """A path may not be read or written: it leads out of its folder, or is not a regular file."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no file of that name."""


class LimitError(FileError):
    """A file asks for more than its size is worth; the message names the limit and how to raise it."""


class DataError(OnnxGradError, ValueError):
    """A batch does not fit the model, or holds what would spoil it; names the key and the row."""


class ConfigError(OnnxGradError, ValueError):
    """A config file or a flag that cannot be used."""


class CheckpointError(OnnxGradError):
    """A checkpoint is missing, damaged, or of another model."""


class ExportError(OnnxGradError):
    """A trained model could not be written; what stood under its name is still there."""


class AdapterError(OnnxGradError, ValueError):
    """An adapter that cannot be made or read: damaged, of another model, or asking for what it lacks."""


class DivergedError(OnnxGradError):
    """Training met a number that is not finite; `tensor` is the first one that holds it."""

    def __init__(self, message: str, tensor: str = "", step: int = 0):
        super().__init__(message)
        self.tensor, self.step = tensor, step


class ParallelError(OnnxGradError):
    """Another process of the run has stopped, or they do not agree; `rank` is the one it is about."""

    def __init__(self, message: str, rank: int = 0):
        super().__init__(message)
        self.rank = rank


class OutOfMemoryError(OnnxGradError, MemoryError):
    """There was not enough memory for what was asked."""


class InternalError(OnnxGradError, RuntimeError):
    """What should not happen: a bug of onnxgrad. The message has what to report, and where."""


class DropInError(OnnxGradError, RuntimeError):
    """What was asked of onnxgrad.artifacts, api or onnxblock cannot be done: a file does not fit, say.

    A RuntimeError because onnxruntime.training raises one.
    """


class DropInTypeError(OnnxGradError, TypeError):
    """An argument of onnxgrad.artifacts, api or onnxblock has another type than onnxruntime.training takes."""
