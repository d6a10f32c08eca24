"""Federated learning with Flower: an ONNX model as a client app, and what a server app needs of it.

    app = onnxgrad.flower.client_app("model.onnx", data=load, loss="cross_entropy")

Strategies, mods, differential privacy and secure aggregation are Flower's own. See docs/federated.md.
"""

from onnxgrad.flower.client import client_app
from onnxgrad.flower.project import packed, unpacked
from onnxgrad.flower.server import initial_arrays, save

__all__ = ["client_app", "initial_arrays", "packed", "save", "unpacked"]
