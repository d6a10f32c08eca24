"""`onnxgrad ops [NAME]`: our operators, and what is known of the gradient of every operator; or one of them in full."""

from __future__ import annotations

import argparse
import difflib

from rich.table import Table

from onnxgrad.cli.texts import Console
from onnxgrad.contracts import Accuracy, Attribute, Contract, Tensor, contracts
from onnxgrad.errors import ContractError


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "ops", help="list the operators that onnxgrad adds to ONNX Runtime"
    )
    parser.add_argument("name", nargs="?", help="show one operator in full, such as ReluGrad")
    return parser


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    if options.name is None:
        console.print(overview())
        console.print(
            f"{len(contracts())} kernels: operators of domain com.microsoft, opset 1, float32 and float64.\n"
        )
        console.print(gradients())
        return 0
    name = find(options.name)
    if name in contracts():
        show(contracts()[name], console)
    else:
        show_state(name, gradient_states()[name], console)
    return 0


def gradient_states() -> dict[str, tuple[str, str, str]]:
    from onnxgrad.autodiff.coverage import states

    return states()


def gradients() -> Table:
    """The operators of ONNX and ONNX Runtime by the state of their gradient, as in docs/coverage.md."""
    groups: dict[str, list[str]] = {}
    for name, (state, _, fused) in gradient_states().items():
        kind = state.split(":")[0]
        groups.setdefault("rule and kernel" if fused else kind, []).append(name)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for kind in ("rule and kernel", "rule", "inlined", "rewritten", "zero", "refused", "missing"):
        if kind in groups:
            table.add_row(f"[bold]{kind}[/bold]", str(len(groups[kind])), " ".join(groups[kind]))
    return table


def show_state(name: str, state: tuple[str, str, str], console: Console) -> None:
    """What is known of the gradient of one operator."""
    text, inputs, fused = state
    console.print(f"[bold]{name}[/bold]  gradient: {text}", markup=True)
    if inputs:
        console.print(f"inputs with a gradient: {inputs}")
    if fused:
        console.print('with a kernel of ours (ops="fused")')


def find(name: str) -> str:
    """The operator's name as ONNX writes it; relu_grad, relugrad and RELU_GRAD are ReluGrad."""
    known = {plain(n): n for n in (*contracts(), *gradient_states())}
    if plain(name) in known:
        return known[plain(name)]
    near = difflib.get_close_matches(plain(name), known, n=1)
    hint = f", did you mean {known[near[0]]}?" if near else ", see `onnxgrad ops` for the list"
    raise ContractError(f"no operator is called '{name}'{hint}")


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def overview() -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for title in ("inputs", "outputs"):
        table.add_column(title, overflow="fold")
    for c in contracts().values():
        table.add_row(
            f"[bold]{c.name}[/bold]",
            " ".join(short(t) for t in c.inputs),
            " ".join(short(t) for t in c.outputs),
        )
    return table


def short(tensor: Tensor) -> str:
    """The name, with ? when it may be absent."""
    return tensor.name + ("?" if tensor.optional else "")


def show(contract: Contract, console: Console) -> None:
    console.print(f"[bold]{contract.name}[/bold]  {contract.summary}")
    console.print(f"\n  {contract.formula}\n", markup=False)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for kind, tensors in (("input", contract.inputs), ("output", contract.outputs)):
        for t in tensors:
            optional = " (optional)" if t.optional else ""
            table.add_row(
                kind, f"[bold]{t.name}[/bold]", t.spec.replace("[", "\\["), t.doc + optional
            )
    for a in contract.attributes:
        table.add_row("attribute", f"[bold]{a.name}[/bold]", default_text(a), a.doc)
    console.print(table)
    console.print(f"\naccuracy   {accuracy_text(contract)}")
    console.print(f"NumPy      onnxgrad.kernels.{contract.python_name}(...)")


def default_text(attribute: Attribute) -> str:
    """`= 0.01`, or the kind of value when there is no default."""
    if attribute.default is None:
        return attribute.kind
    if isinstance(attribute.default, float):
        return f"= {attribute.default:g}"
    return f"= {attribute.default}"


def accuracy_text(contract: Contract) -> str:
    """`float32 within 5 ulp of …; float64 within 1e-13`, after the outputs that have a bound of their own."""
    own = "".join(f"{name} {bound_text(a)}. " for name, a in contract.own_accuracies.items())
    return own + ("Otherwise " if own else "") + bound_text(contract.accuracy)


def bound_text(accuracy: Accuracy) -> str:
    if accuracy.measure.startswith("ulp"):
        return f"float32 within {accuracy.float32:g} {accuracy.measure}; float64 within {accuracy.float64:g}"
    return f"float32 within {accuracy.float32:g}, float64 within {accuracy.float64:g}, {accuracy.measure}"
