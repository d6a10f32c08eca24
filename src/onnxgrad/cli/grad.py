"""`onnxgrad grad model.onnx --of loss -o gradient.onnx`: the gradient of a model, as a model."""

from __future__ import annotations

import argparse

from rich.markup import escape

import onnxgrad
from onnxgrad.cli.exit_codes import OK
from onnxgrad.cli.texts import Console
from onnxgrad.contracts import DOMAIN, contracts
from onnxgrad.errors import ModelError
from onnxgrad.files.write import check_target, save


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "grad",
        help="write a model that also computes gradients",
        description="The result has the inputs and outputs of the model and, for each NAME, an output NAME_grad. "
        "For an output that is not a scalar it also has an input OUTPUT_grad, the cotangent.",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--of",
        metavar="OUTPUT",
        help="the output to differentiate (default: the only float output)",
    )
    parser.add_argument(
        "--wrt",
        nargs="+",
        metavar="NAME",
        help="inputs or weights (default: every trainable weight)",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="where to write the result"
    )
    parser.add_argument(
        "--standard-ops", action="store_true", help="standard ONNX operators only: runs anywhere"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.files.models import ModelFile
    from onnxgrad.inspection.reading import read

    console = Console(highlight=False)
    check_target(options.output, options.model)
    model = ModelFile.of(options.model)
    original, _ = read(model)
    of = options.of or only_float_output(original)
    value = next((v for v in original.graph.outputs if v.name == of), None)
    scalar = value is not None and value.shape is not None and all(d == 1 for d in value.shape)
    ops = "standard" if options.standard_ops else "fused"
    if scalar:
        result = onnxgrad.grad(model, of=of, wrt=options.wrt, ops=ops)
    else:
        result = onnxgrad.vjp(model, outputs=[of], wrt=options.wrt, ops=ops)
    save(result, options.output)
    names = [o.name for o in result.graph.output][len(original.graph.outputs) :]
    console.print(f"wrote [bold]{escape(options.output)}[/bold]: {len(result.graph.node):,} nodes")
    console.print(f"gradients: {escape(', '.join(names[:12]))}{' …' if len(names) > 12 else ''}")
    if not scalar:
        console.print(f"feed the cotangent of {escape(of)!r} as input {escape(of)}_grad")
    if ops == "fused" and uses_our_operators(result):
        console.print(
            "run it with onnxgrad.session(...), or register onnxgrad.library_path() in your own session"
        )
    return OK


def only_float_output(model) -> str:
    """The name of the only float output; an error that lists them when there are several."""

    names = [v.name for v in model.graph.outputs if v.dtype is None or v.dtype.is_floating_point()]
    if len(names) != 1:
        listed = ", ".join(map(repr, names)) or "none"
        raise ModelError(f"the model has {len(names)} float outputs ({listed}): name one with --of")
    return names[0]


def uses_our_operators(model) -> bool:
    return any(n.domain == DOMAIN and n.op_type in contracts() for n in model.graph.node)
