"""Prove that the gradients of a model are right, by central differences."""

from onnxgrad.checking.differences import Check, Row, check_gradients

__all__ = ["Check", "Row", "check_gradients"]
