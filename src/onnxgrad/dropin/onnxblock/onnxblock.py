"""Blocks that make whole models: ForwardBlock a model, TrainingBlock a training and an eval model."""

from __future__ import annotations

from abc import abstractmethod

import onnx

from onnxgrad.dropin.old.functions import add_functions
from onnxgrad.dropin.onnxblock import (
    _graph_utils,
    _training_graph_utils,
    blocks,
    model_accessor,
)
from onnxgrad.errors import DropInError


class ForwardBlock(blocks.Block):
    """A block whose result becomes the output of the model, which `to_model_proto` returns."""

    def __init__(self):
        super().__init__()
        self._model = None

    @abstractmethod
    def build(self, *args, **kwargs):
        """Add to `self.base`; return the name of the model's output, or several."""

    def to_model_proto(self):
        """Return the model; raises RuntimeError before the block was called."""
        if self._model is None:
            raise DropInError(
                "the model is not built yet. Please build the forward models first before trying "
                "to retrieve it: call the block inside `with onnxblock.base(...)`"
            )
        return self._model

    def __call__(self, *args, **kwargs):
        """Run `build` and make its result the output of the model."""
        accessor = model_accessor.current()
        self.base = accessor.model
        output = self.build(*args, **kwargs)
        self._model = self.infer_shapes_on_base()
        _graph_utils.register_graph_outputs(self._model, output)
        add_functions(self._model)
        accessor.model.CopyFrom(self._model)
        return output


class TrainingBlock(blocks.Block):
    """A block whose first result is a loss: it also makes the gradients of what requires them."""

    def __init__(self):
        super().__init__()
        self._requires_grad = set()
        self._frozen_params = set()
        self._parameters = None
        self._training_model = None
        self._eval_model = None

    @abstractmethod
    def build(self, *args, **kwargs):
        """Add to `self.base`; return the name of the loss, then those of other outputs."""

    def requires_grad(self, argument_name: str, value: bool = True):
        """Train a parameter or input; False freezes a parameter. By default nothing is trained."""
        chosen, other = self._requires_grad, self._frozen_params
        if value is not True:
            chosen, other = other, chosen
        chosen.add(argument_name)
        other.discard(argument_name)

    def parameters(self) -> tuple[list[onnx.TensorProto], list[onnx.TensorProto]]:
        """Return the trained and the frozen parameters; raises RuntimeError before the call."""
        if self._parameters is None:
            raise DropInError(
                "Please build the training model first before trying to retrieve the parameters."
            )
        return self._parameters

    def to_model_proto(self) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Return the training and the eval model; raises RuntimeError before the call."""
        if self._training_model is None or self._eval_model is None:
            raise DropInError(
                "Please build the training and eval models first before trying to retrieve them."
            )
        return self._training_model, self._eval_model

    def __call__(self, *args, **kwargs):
        """Run `build`, and add the gradients of the loss and their accumulators."""
        accessor = model_accessor.current()
        self.base = accessor.model
        output = self.build(*args, **kwargs)
        model = self.infer_shapes_on_base()
        _graph_utils.register_graph_outputs(model, output)
        chosen = self._requires_grad, self._frozen_params
        self._parameters = _training_graph_utils.get_model_parameters(model, *chosen)
        self._training_model, self._eval_model = _training_graph_utils.build_gradient_graph(
            model, *chosen, output
        )
        _training_graph_utils.build_gradient_accumulation_graph(
            self._training_model, self._requires_grad
        )
        add_functions(self._training_model)
        accessor.model.CopyFrom(self._training_model)
        return output
