"""Quantisation-aware training: a float model becomes an integer file that is trained as what it will compute.

settings     Quantize: what a user asks for
calibrate    a float model and data → an integer model, by onnxruntime's own writer
prepare      both in one: an integer model, and the change that trains it
fake         the change: the integer file trains as floats through FakeQuant, and is written as integers again
"""

from onnxgrad.model.quantize.fake import FakeQuantise
from onnxgrad.model.quantize.prepare import quantised
from onnxgrad.model.quantize.settings import Quantize

__all__ = ["FakeQuantise", "Quantize", "quantised"]
