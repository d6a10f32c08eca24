"""Estimators for scikit-learn: an ONNX model in a Pipeline, a GridSearchCV, a cross-validation.

    from onnxgrad.sklearn import OnnxClassifier
    search = GridSearchCV(OnnxClassifier("model.onnx"), {"lr": [1e-3, 1e-2], "trainable": ["head", "all"]})

Needs scikit-learn 1.6 or newer: `pip install 'onnxgrad[sklearn]'`.
"""

from onnxgrad.sklearn.estimators import OnnxClassifier, OnnxRegressor
from onnxgrad.sklearn.network import mlp

__all__ = ["OnnxClassifier", "OnnxRegressor", "mlp"]
