"""The exceptions of onnxgrad. Each message says who, what came, what was expected, what to do."""


class OnnxGradError(Exception):
    """Base of every error that onnxgrad raises on purpose."""


class ContractError(OnnxGradError, ValueError):
    """An operator was called with a shape, type or attribute that its contract does not allow."""


class GradientError(OnnxGradError):
    """A model cannot be differentiated; the message names every node that stands in the way."""


class ModelError(OnnxGradError, ValueError):
    """There is no model to work with: a file that is missing, damaged or something else."""
