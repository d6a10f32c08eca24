"""Several processes that train one model: what a step asks of them."""

from onnxgrad.train.parallel.communicator import Alone, Communicator

__all__ = ["Alone", "Communicator"]
