"""Train ONNX models on the ONNX Runtime you already have.

    onnxgrad.kernels            gradient kernels on NumPy arrays
    onnxgrad.register, session  the same kernels as operators in ONNX Runtime
"""

from onnxgrad import kernels
from onnxgrad.errors import ContractError, GradientError, OnnxGradError
from onnxgrad.kernels import get_num_threads, set_num_threads
from onnxgrad.ort import library_path, register, session

__version__ = "0.1.0"

__all__ = [
    "ContractError",
    "GradientError",
    "OnnxGradError",
    "get_num_threads",
    "kernels",
    "library_path",
    "register",
    "session",
    "set_num_threads",
]
