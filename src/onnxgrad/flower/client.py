"""The client app: take the tensors of a round, train on the node's own data, give them back with the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxgrad.errors import ConfigError
from onnxgrad.flower.records import flwr_app, from_record, to_record
from onnxgrad.flower.server import few, sent_tensors, tensors_by_name
from onnxgrad.train.trainer import Trainer

KEPT = "onnxgrad.statistics"  # in the state that Flower keeps of a node


def client_app(
    model: Any,
    *,
    data: Callable[[Any], Any],
    loss: Any = None,
    epochs: int = 1,
    batch_size: int = 32,
    statistics: bool = True,
    mods: Iterable[Any] = (),
    **settings: Any,
) -> Any:
    """Return a flwr ClientApp that trains and evaluates an ONNX model on the data of its node.

    model: the same file on the server and on every node.
    data: a function from Flower's context to (x, y), or to ((x, y), (x to validate, y to validate));
        `context.node_config` says which node it is.
    epochs, batch_size: of a round; the server's config may say "local-epochs", "batch-size" and "lr".
    statistics: send the running statistics of batch normalisations, as FedAvg does; False keeps those of
        each node to itself (FedBN).
    mods: of Flower: differential privacy, secure aggregation.
    loss, settings: as for `onnxgrad.Trainer`. With `lora` only the adapter travels.

    Every round begins with a fresh optimizer. "proximal-mu" in the config, which FedProx sends, adds
    mu/2·‖w − w of the server‖² to the loss.
    """
    flwr_app()
    from flwr.clientapp import ClientApp

    settings = {"loss": loss, **settings}
    node = Node(model, data, settings, epochs, batch_size, statistics)
    app = ClientApp(mods=list(mods))
    app.train()(node.train)
    app.evaluate()(node.evaluate)
    return app


@dataclass
class Node:
    """What a client app does with a message."""

    model: Any
    data: Callable[[Any], Any]
    settings: dict[str, Any]
    epochs: int
    batch_size: int
    statistics: bool

    def train(self, message: Any, context: Any) -> Any:
        """Train for a round; reply with the tensors, the number of rows and the loss."""
        asked = Request.of(message)
        trainer = self._trainer(asked, context)
        (x, y), _ = self._rows(context)
        trainer.stay_near(float(asked.config.get("proximal-mu", 0.0)))
        history = trainer.fit(
            x, y, epochs=int(asked.config.get("local-epochs", self.epochs)),
            batch_size=int(asked.config.get("batch-size", self.batch_size)),
        )  # fmt: skip
        weights = trainer.get_weights()
        if not self.statistics and trainer.store.statistics:
            own = {name: weights[name] for name in trainer.store.statistics}
            context.state[KEPT] = to_record(own)
        tensors = {name: weights[name] for name in sent_tensors(trainer, self.statistics)}
        return asked.reply(tensors, {"num-examples": _count(y), "train_loss": history["loss"][-1]})

    def evaluate(self, message: Any, context: Any) -> Any:
        """Evaluate the tensors on the node's rows to validate; on all where it has none."""
        asked = Request.of(message)
        trainer = self._trainer(asked, context)
        rows, held = self._rows(context)
        x, y = held or rows
        scores = trainer.evaluate(x, y, batch_size=self.batch_size)
        return asked.reply_scores(
            {"num-examples": _count(y), **{f"eval_{k}": v for k, v in scores.items()}}
        )

    def _trainer(self, asked: Request, context: Any) -> Trainer:
        rate = asked.config.get("lr")
        settings = self.settings if rate is None else {**self.settings, "lr": float(rate)}
        trainer = Trainer(self.model, **settings)
        names = sent_tensors(trainer, self.statistics)
        trainer.set_weights(asked.tensors(names))
        if KEPT in context.state and not self.statistics:
            trainer.set_weights(from_record(context.state[KEPT]))
        return trainer

    def _rows(self, context: Any) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
        found = self.data(context)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ConfigError(
                f"data returned a {type(found).__name__}, expected (x, y), or ((x, y), (x to validate, y to validate))"
            )
        return found if isinstance(found[0], tuple) else (found, None)


def _count(y: Any) -> int:
    first = next(iter(y.values())) if isinstance(y, Mapping) else y
    return len(first)


@dataclass
class Request:
    """A message of either of Flower's forms: arrays by name, or the older list of them (secure aggregation's)."""

    message: Any
    arrays: Any
    config: Mapping[str, Any]
    listed: bool

    @classmethod
    def of(cls, message: Any) -> Request:
        content = message.content
        for word in ("fitins", "evaluateins"):
            if f"{word}.parameters" in content:
                config = dict(content[f"{word}.config"])
                return cls(message, content[f"{word}.parameters"], config, listed=True)
        arrays = next(iter(content.array_records.values()), None)
        if arrays is None:
            raise ConfigError(
                "the message of the server has no arrays, expected an ArrayRecord by name"
            )
        config = next(iter(content.config_records.values()), {})
        return cls(message, arrays, dict(config), listed=False)

    def tensors(self, names: list[str]) -> dict[str, np.ndarray]:
        """The arrays that came, by name; what does not fit the model is refused."""
        if self.listed:
            found = self.arrays.to_numpy_ndarrays()
            if len(found) != len(names):
                raise ConfigError(
                    f"the server sent {len(found)} arrays, expected {len(names)}: {few(names)}"
                )
            return dict(zip(names, found, strict=True))
        return tensors_by_name(self.arrays, names)

    def reply(self, tensors: Mapping[str, np.ndarray], metrics: dict[str, float]) -> Any:
        """The answer to a round."""
        app = flwr_app()
        if self.listed:
            return app.Message(_old_fit_result(tensors, metrics), reply_to=self.message)
        content = {"arrays": to_record(tensors), "metrics": app.MetricRecord(metrics)}
        return app.Message(app.RecordDict(content), reply_to=self.message)

    def reply_scores(self, metrics: dict[str, float]) -> Any:
        """The answer to an evaluation."""
        app = flwr_app()
        if self.listed:
            return app.Message(_old_scores(metrics), reply_to=self.message)
        content = {"metrics": app.MetricRecord(metrics)}
        return app.Message(app.RecordDict(content), reply_to=self.message)


def _old_fit_result(tensors: Mapping[str, np.ndarray], metrics: dict[str, float]) -> Any:
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

    parameters = ndarrays_to_parameters(list(tensors.values()))
    rest = {k: v for k, v in metrics.items() if k != "num-examples"}
    result = FitRes(Status(Code.OK, ""), parameters, int(metrics["num-examples"]), rest)
    return _old_records().fitres_to_recorddict(result, keep_input=False)


def _old_scores(metrics: dict[str, float]) -> Any:
    from flwr.common import Code, EvaluateRes, Status

    rest = {k: v for k, v in metrics.items() if k not in ("num-examples", "eval_loss")}
    result = EvaluateRes(
        Status(Code.OK, ""), metrics["eval_loss"], int(metrics["num-examples"]), rest
    )
    return _old_records().evaluateres_to_recorddict(result)


def _old_records() -> Any:
    """Flower's own translation of the older messages; it has moved between versions."""
    try:
        from flwr.compat.common import recorddict_compat
    except ImportError:
        from flwr.common import recorddict_compat
    return recorddict_compat
