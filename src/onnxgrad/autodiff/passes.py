"""The differentiation as a pass of onnx-ir, to be chained with those of onnxscript, Olive or one's own."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnxgrad.autodiff.api import grad, vjp


class DifferentiatePass(ir.passes.FunctionalPass):
    """Returns a model that also computes gradients; the model that comes in is left unchanged.

    of: a scalar output, as for `onnxgrad.grad`; None adds cotangent inputs, as `onnxgrad.vjp` does, for
        `outputs` (default: every float output). The rest is as for those functions.

        >>> import onnx
        >>> model = ir.from_proto(onnx.parser.parse_model('''
        ...     <ir_version: 8, opset_import: ["" : 17]>
        ...     g (float[3] x) => (float loss) <float[3] w = {1, 2, 3}>
        ...     { p = Mul(x, w)  loss = ReduceSum <keepdims = 0> (p) }'''))
        >>> result = ir.passes.Sequential(DifferentiatePass(of="loss"))(model)
        >>> [o.name for o in result.model.graph.outputs], result.modified
        (['loss', 'w_grad'], True)
    """

    def __init__(
        self,
        of: str | None = None,
        *,
        outputs: Iterable[str] | None = None,
        wrt: Iterable[str] | None = None,
        ops: str = "fused",
        parameters: str = "initializers",
        patterns: bool = True,
    ):
        super().__init__()
        if of is not None and outputs is not None:
            raise ValueError("of and outputs are both given, expected one of them")
        self.of, self.outputs = of, None if outputs is None else list(outputs)
        self.wrt = None if wrt is None else list(wrt)
        self.settings = {"ops": ops, "parameters": parameters, "patterns": patterns}

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Build the gradients; raises GradientError where there are none."""
        if self.of is not None:
            made = grad(model, self.of, self.wrt, **self.settings)
        else:
            made = vjp(model, self.outputs, self.wrt, **self.settings)
        return ir.passes.PassResult(made, modified=True)
