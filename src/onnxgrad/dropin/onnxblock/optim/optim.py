"""Optimizer models: their inputs are sequences of parameters, gradients and moments.

Only their settings count: `onnxgrad.dropin.api.Optimizer` reads them and runs its own kernels.
"""

from __future__ import annotations

from onnx import TensorProto, helper

from onnxgrad.contracts import DOMAIN
from onnxgrad.dropin.onnxblock import blocks
from onnxgrad.dropin.onnxblock import onnxblock as onnxblock_module
from onnxgrad.dropin.onnxblock._graph_utils import generate_graph_name
from onnxgrad.dropin.onnxblock.building import add_node
from onnxgrad.errors import DropInError


class ClipGradNorm(blocks.Block):
    """The gradients, scaled down where their common norm is above `max_norm`."""

    def __init__(self, max_norm: float):
        super().__init__()
        self._max_norm = max_norm

    def build(self, gradients_name: str):
        result = generate_graph_name("clip_grad_norm_output")
        add_node(
            self.base, "InplaceClipGradNorm", [gradients_name], result=result, domain=DOMAIN,
            max_norm=float(self._max_norm),
        )  # fmt: skip
        info = helper.make_tensor_sequence_value_info(result, TensorProto.FLOAT, None)
        self.base.graph.value_info.append(info)
        return result


class SGDOptimizer(blocks.Block):
    """parameter - rate·gradient"""

    def __init__(self):
        super().__init__()

    def build(self, learning_rate_name: str, gradients_name: str, params_name: str) -> str:
        # the operator takes the weights before the gradients
        inputs = [learning_rate_name, params_name, gradients_name]
        result = generate_graph_name("update_completed")
        return add_node(self.base, "SGDOptimizerV2", inputs, result=result, domain=DOMAIN)


class AdamWOptimizer(blocks.Block):
    """AdamW as Hugging Face has it: weights decay after the update, ε is outside the correction."""

    def __init__(
        self,
        bias_correction: bool | None = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = 1e-6,
        weight_decay: float | None = 0.0,
    ):
        super().__init__()
        self._attributes = {
            "alpha": float(betas[0]),
            "beta": float(betas[1]),
            "epsilon": float(eps),
            "weight_decay": float(weight_decay),
            "correct_bias": 1 if bias_correction else 0,
            "adam_mode": 1,
        }

    def build(
        self,
        learning_rate_name: str,
        step_name: str,
        parameter_sequence_name: str,
        gradient_sequence_name: str,
        first_order_moment_sequence_name: str,
        second_order_moment_sequence_name: str,
    ) -> str:
        inputs = [
            learning_rate_name,
            step_name,
            parameter_sequence_name,
            gradient_sequence_name,
            first_order_moment_sequence_name,
            second_order_moment_sequence_name,
        ]
        result = generate_graph_name("adamw.updated_flag")
        return add_node(
            self.base, "AdamWOptimizer", inputs, result=result, domain=DOMAIN, **self._attributes
        )


class _Optimizer(onnxblock_module.ForwardBlock):
    """An optimizer for the pair of trained and frozen parameters of a TrainingBlock."""

    sequences: tuple[str, ...] = ("params", "gradients", "first_order_moments")

    def __init__(self, clip_grad=None):
        super().__init__()
        self._clip_grad = clip_grad

    def build(self, parameters):
        trained, _ = parameters
        if not trained:
            raise DropInError(
                "there is nothing to optimize: no parameter requires a gradient; name them in "
                "requires_grad"
            )
        inputs = self.base.graph.input
        inputs.append(helper.make_tensor_value_info("learning_rate", TensorProto.FLOAT, [1]))
        inputs.append(helper.make_tensor_value_info("step", TensorProto.INT64, [1]))
        kind = trained[0].data_type
        for name in self.sequences:
            inputs.append(helper.make_tensor_sequence_value_info(name, kind, None))
        gradients = "gradients"
        if self._clip_grad is not None:
            gradients = self._clip_grad(gradients)
        updated = self._update(gradients)
        output = helper.make_tensor_value_info(updated, TensorProto.BOOL, [1])
        self.base.graph.output.append(output)
        return updated

    def _update(self, gradients: str) -> str:
        raise NotImplementedError


class AdamW(_Optimizer):
    """The optimizer model of AdamW."""

    sequences = (*_Optimizer.sequences, "second_order_moments")

    def __init__(
        self,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.0,
        clip_grad=None,
    ):
        super().__init__(clip_grad)
        self._adamw = AdamWOptimizer(bias_correction, betas, eps, weight_decay)

    def _update(self, gradients: str) -> str:
        moments = self.sequences[2:]
        return self._adamw("learning_rate", "step", "params", gradients, *moments)


class SGD(_Optimizer):
    """The optimizer model of SGD."""

    def __init__(self, clip_grad=None):
        super().__init__(clip_grad)
        self._sgd = SGDOptimizer()

    def _update(self, gradients: str) -> str:
        return self._sgd("learning_rate", gradients, "params")
