"""Several processes that train one model: what a step asks of them."""

from onnxgrad.train.parallel.communicator import Alone, Communicator
from onnxgrad.train.parallel.division import Division
from onnxgrad.train.parallel.group import Group

__all__ = ["Alone", "Communicator", "Division", "Group"]
