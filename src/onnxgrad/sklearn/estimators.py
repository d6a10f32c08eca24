"""OnnxClassifier and OnnxRegressor."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError(
        "onnxgrad.sklearn needs scikit-learn 1.6 or newer: pip install 'onnxgrad[sklearn]'"
    ) from error

from onnxgrad.files.models import read_whole
from onnxgrad.files.write import write_bytes
from onnxgrad.graph import load
from onnxgrad.model.ending import probabilities
from onnxgrad.model.guess import guess
from onnxgrad.model.head import Head
from onnxgrad.model.trainable import TrainableModel
from onnxgrad.sklearn.network import Network, float_output, like_output, mlp, row_shape, width_of
from onnxgrad.train.callbacks import Callback, EarlyStopping
from onnxgrad.train.trainer import Trainer


class _OnnxEstimator(BaseEstimator):
    """What both estimators share."""

    def __init__(
        self,
        model: Any = None,
        *,
        loss: Any = None,
        optimizer: Any = "adamw",
        lr: float = 1e-2,
        epochs: int = 20,
        batch_size: int = 32,
        trainable: Any = "all",
        schedule: Any = None,
        clip_norm: float | None = None,
        dropout: float | None = None,
        freeze_bn: bool = False,
        new_head: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.trainable = trainable
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.dropout = dropout
        self.freeze_bn = freeze_bn
        self.new_head = new_head
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.threads = threads
        self.random_state = random_state
        self.verbose = verbose

    # ---- making the network ------------------------------------------------------------------

    def _network(self, features: int, outputs: int, targets: np.ndarray) -> Network:
        """The trainer of a new fit."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        model: Any = self.model
        if model is None or callable(model):
            make: Callable[..., Any] = mlp if model is None else model
            model = make(features, outputs, **({"seed": seed} if model is None else {}))
        source = read_whole(model)
        head = Head(outputs, seed=seed) if self.new_head else None
        graph = load(
            source if head is None else TrainableModel(source, changes=[head]).source.proto
        )
        judged = float_output(graph)
        self._check_width(judged, outputs)
        loss = self.loss or guess(graph, like_output(targets, judged)).loss or self._usual_loss
        trainer = Trainer(
            source, loss={judged.name: loss}, optimizer=self.optimizer, lr=self.lr, trainable=self.trainable,
            schedule=self.schedule, clip_norm=self.clip_norm, dropout=self.dropout, freeze_bn=self.freeze_bn,
            head=Head(outputs, seed=seed) if self.new_head else None, seed=seed, threads=self.threads,
        )  # fmt: skip
        return Network(trainer, row_shape(graph, features), judged)

    def _begin(self, x: np.ndarray, outputs: int, targets: np.ndarray) -> None:
        self.network_ = self._network(int(np.prod(x.shape[1:])), outputs, targets)

    def _go_on(self, outputs: int, targets: np.ndarray) -> None:
        """After unpickling: a new trainer from the weights; the optimizer begins anew."""
        if self.network_.trainer is not None:
            return
        twin = self.__class__(**self.get_params(deep=False))
        twin.model, twin.new_head = self.network_.to_bytes(), False
        self.network_ = twin._network(int(np.prod(self.network_.shape)), outputs, targets)

    def _check_width(self, judged: ir.Value, outputs: int) -> None:
        width = judged.shape[-1] if judged.shape is not None and len(judged.shape) > 1 else None
        if isinstance(width, int) and width not in self._widths(outputs):
            raise ValueError(
                f"the model's output {judged.name!r} has {width} columns, and the data ask for {outputs}; "
                "new_head=True makes a new last layer for them"
            )

    def _widths(self, outputs: int) -> tuple[int, ...]:
        return (outputs,)

    def _train(self, x: np.ndarray, y: np.ndarray, epochs: int) -> None:
        """Train the network on validated rows."""
        network = self.network_
        watch: list[Callback] = []
        share = None
        if self.early_stopping and epochs == self.epochs:
            watch, share = [EarlyStopping(patience=self.n_iter_no_change)], self.validation_fraction
        self.history_ = network.trainer.fit(
            network.rows(x), network.targets(y), validation=share, epochs=epochs, batch_size=self.batch_size,
            callbacks=watch, verbose=self.verbose,
        )  # fmt: skip
        self.n_iter_ = len(self.history_.epochs)

    def _fed(self, x: Any) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, x, dtype=np.float32, reset=False, **self._ways(x))
        return self.network_.outputs(x, max(self.batch_size, 256))

    @staticmethod
    def _ways(x: Any) -> dict[str, Any]:
        return {"allow_nd": True} if getattr(x, "ndim", 2) > 2 else {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as an ONNX file, which any onnxruntime runs."""
        check_is_fitted(self)
        write_bytes(Path(path), self.network_.to_bytes())


class OnnxClassifier(ClassifierMixin, _OnnxEstimator):
    """An ONNX model as a classifier of scikit-learn.

    model: a path, bytes or an `onnx.ModelProto`, or a function (features, classes) -> model; None makes a
        new network with one hidden layer (`mlp`). Rows [N, F] are given the shape that the model takes.
    new_head: make a new last layer, for as many classes as the data have.
    early_stopping: set `validation_fraction` of the rows aside, and stop after `n_iter_no_change` epochs
        without improvement, with the best weights. Other arguments are those of `onnxgrad.Trainer` and `fit`.

    Fitted: `classes_`, `n_features_in_`, `n_iter_`, `history_` (`history_.plot()`), and `save(path)`.

        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> bool(OnnxClassifier(random_state=0).fit(x, y).score(x, y) > 0.9)
        True
    """

    _usual_loss = "cross_entropy"

    def fit(self, X: Any, y: Any) -> OnnxClassifier:
        """Train a new copy of the model on the rows and their classes."""
        X, y = self._checked(X, y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._first(X, labels)
        self._train(X, labels, self.epochs)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> OnnxClassifier:
        """Train for one more pass over these rows; the first call names all `classes`, or sees them in y."""
        first = not hasattr(self, "network_")
        X, y = self._checked(X, y, reset=first)
        if first:
            self.classes_ = unique_labels(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y holds the class {unknown.tolist()[0]!r}, which the first call did not name"
            )
        labels = np.searchsorted(self.classes_, y)
        if first:
            self._first(X, labels)
        self._go_on(len(self.classes_), labels)
        self._train(X, labels, 1)
        return self

    def _checked(self, X: Any, y: Any, reset: bool = True) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float32, reset=reset, **self._ways(X))
        check_classification_targets(y)
        return X, column_or_1d(y, warn=True)

    def _first(self, X: np.ndarray, labels: np.ndarray) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"the rows are all of one class, {self.classes_.tolist()[0]!r}: a classifier needs two"
            )
        self._begin(X, len(self.classes_), labels)

    def _widths(self, outputs: int) -> tuple[int, ...]:
        return (1, 2) if outputs == 2 else (outputs,)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class, [N, classes], in the order of `classes_`."""
        scores = self._fed(X)
        return probabilities(scores, self.network_.kind)

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of every row."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]


class OnnxRegressor(RegressorMixin, _OnnxEstimator):
    """An ONNX model as a regressor of scikit-learn; arguments are those of `OnnxClassifier`.

    Targets are [N], or [N, K] for a model with K outputs. They are used as they are: for targets far from
    mean 0 and deviation 1, `sklearn.compose.TransformedTargetRegressor` helps.

        >>> from sklearn.datasets import make_regression
        >>> x, y = make_regression(random_state=0, n_features=5)
        >>> bool(OnnxRegressor(random_state=0, epochs=50).fit(x, y / y.std()).score(x, y / y.std()) > 0.9)
        True
    """

    _usual_loss = "mse"

    def fit(self, X: Any, y: Any) -> OnnxRegressor:
        """Train a new copy of the model on the rows and their targets."""
        X, y = self._checked(X, y)
        self._begin(X, width_of(y), y)
        self._train(X, y, self.epochs)
        return self

    def partial_fit(self, X: Any, y: Any) -> OnnxRegressor:
        """Train for one more pass over these rows."""
        first = not hasattr(self, "network_")
        X, y = self._checked(X, y, reset=first)
        if first:
            self._begin(X, width_of(y), y)
        self._go_on(width_of(y), y)
        self._train(X, y, 1)
        return self

    def _checked(self, X: Any, y: Any, reset: bool = True) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float32,
            reset=reset,
            multi_output=True,
            y_numeric=True,
            **self._ways(X),
        )
        y = column_or_1d(y, warn=True) if y.ndim == 1 or y.shape[1] == 1 else y
        return X, y.astype(np.float32)

    def predict(self, X: Any) -> np.ndarray:
        """Return the model's numbers for every row: [N], or [N, K]."""
        found = self._fed(X)
        found = found.reshape(len(found), -1)
        return found[:, 0] if found.shape[1] == 1 else found
