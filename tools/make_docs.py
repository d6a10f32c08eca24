"""Write what follows from contracts and flags: docs/ops.md, docs/accuracy.md, docs/flags.md, the stub for editors.

`python tools/make_docs.py`; with `--check` it only says what is not up to date.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from onnxgrad import kernels
from onnxgrad.autodiff.coverage import coverage
from onnxgrad.cli import build_parser
from onnxgrad.cli.ops import accuracy_text, default_text
from onnxgrad.contracts import Contract, contracts

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from golden.differences import DIFFERENCES, EXTENSIONS  # noqa: E402


def operator_section(c: Contract) -> str:
    lines = [f"## {c.name}", "", c.summary, "", f"    {c.formula}", ""]
    lines += ["| | name | type and shape | |", "|---|---|---|---|"]
    for kind, tensors in (("input", c.inputs), ("output", c.outputs)):
        for t in tensors:
            doc = t.doc + (" (optional)" if t.optional else "")
            lines.append(f"| {kind} | {t.name} | `{t.spec}` | {doc} |")
    for a in c.attributes:
        accepted = f": {', '.join(a.accepted)}" if a.accepted else ""
        bounds = f" ({a.least}..{a.most})" if a.most < 2**63 - 1 else ""
        lines.append(f"| attribute | {a.name} | {default_text(a)} | {a.doc}{accepted}{bounds} |")
    lines += [
        "",
        f"On NumPy: `onnxgrad.kernels.{c.python_name}`. Accuracy: {accuracy_text(c)}.",
        "",
    ]
    return "\n".join(lines)


def ops_page() -> str:
    head = (
        "# Operators\n\nDomain `com.microsoft`, opset 1. Generated from the contracts in `native/ops` by "
        "`tools/make_docs.py`; do not edit.\n\n`T` is float32 or float64 and `I` is int32 or int64, the same for every "
        "tensor of a call. `name...` stands for any number of dims; a symbol means the same number "
        "wherever it stands.\n\n"
    )
    return head + "\n".join(operator_section(c) for c in contracts().values())


def accuracy_page() -> str:
    lines = [
        "# Accuracy",
        "",
        "Generated from the contracts and `tests/golden/differences.py` by `tools/make_docs.py`; do not edit.",
        "",
        "Every case in `tests/cases` is checked against a float64 reference written from the maths "
        "(`tests/reference`), within the bound of the contract. Results have the same bits in both hosts, on any "
        "number of threads and in every run; they may differ in the last bits between instruction sets.",
        "",
        "SoftmaxGrad and SoftmaxGrad_13 in float32 sum up to 1,024 terms Y·dY in float32, longer rows in float64. "
        "Where the terms of such a short row cancel beside one Y near 1 whose own dY is 0, the bound is a quarter of "
        "float32's eps (3e-8) of Σ |Y·dY| instead. Attributes such as `alpha` are float32, as in ONNX, also for "
        "float64 tensors.",
        "",
        "| operator | float32 | float64 | measure |",
        "|---|---|---|---|",
    ]
    for c in contracts().values():
        own = {f"{c.name}, {output}": a for output, a in c.own_accuracies.items()}
        for name, a in {**own, c.name: c.accuracy}.items():
            measure = a.measure.replace("|", "\\|")
            lines.append(f"| {name} | {a.float32:g} | {a.float64:g} | {measure} |")
    lines += ["", "## Differences from onnxruntime-training 1.19.2", ""]
    lines += ["Where both give numbers:", "", "| operator | case | difference |", "|---|---|---|"]
    for name, reasons in DIFFERENCES.items():
        lines += [f"| {name} | {title} | {reason} |" for title, reason in reasons.items()]
    lines += ["", "What the old package does not do:", "", "| operator | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in EXTENSIONS.items()]
    return "\n".join(lines) + "\n"


STUB_HEAD = '''"""Generated from the contracts in `native/ops` by tools/make_docs.py; do not edit."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

Array = np.ndarray
Out = Array | Mapping[str, Array] | None

def get_num_threads() -> int: ...
def set_num_threads(count: int) -> None: ...
def at_most(threads: int | None) -> AbstractContextManager[None]: ...
'''

STUB_KINDS = {
    "a float": "float",
    "an integer": "int",
    "a list of integers": "Iterable[int]",
    "a string": "str",
    "a list of strings": "Iterable[str]",
    "a list of floats": "Iterable[float]",
}


def kernel_stub(c: Contract) -> str:
    """The signature of one kernel, as `inspect.signature` shows it, with types."""
    optional, kinds = (
        {t.name for t in c.inputs if t.optional},
        {a.name: a.kind for a in c.attributes},
    )
    lines = []
    if len(c.outputs) > 1:
        lines += [f"class {c.name}Result(NamedTuple):"]
        lines += [f"    {t.name}: Array{' | None' if t.optional else ''}" for t in c.outputs]
        lines += [""]
    lines += [f"def {c.python_name}("]
    starred = False
    for p in inspect.signature(getattr(kernels, c.python_name)).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not starred:
            starred = True
            lines.append("    *,")
        if p.name in kinds:
            kind = STUB_KINDS[kinds[p.name]]
            kind += " | None" if p.default is None else ""
        else:
            kind = {"outputs": "Iterable[str] | None", "out": "Out"}.get(p.name, "Array")
            kind += " | None" if p.name in optional else ""
        default = "" if p.default is p.empty else " = ..."
        lines.append(f"    {p.name}: {kind}{default},")
    result = f"{c.name}Result" if len(c.outputs) > 1 else "Array"
    lines += [f") -> {result}:", f'    """{c.summary}"""', ""]
    return "\n".join(lines)


def kernels_stub() -> str:
    return STUB_HEAD + "\n" + "\n".join(kernel_stub(c) for c in contracts().values())


def flags_page() -> str:
    """Every flag of every command, as `--help` has them."""
    lines = [
        "# Flags",
        "",
        "Every command and what it takes, as `onnxgrad COMMAND --help` prints it. Generated by `tools/make_docs.py`; "
        "do not edit. What the flags of training mean is in [command-train.md](command-train.md); `--limit` is in "
        "[SECURITY.md](../SECURITY.md).",
    ]
    for name, command in build_parser().commands.items():
        lines += ["", f"## {name}", "", "| | |", "|---|---|"]
        for action in command.arguments:
            if action.dest == "help":
                continue
            value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
            value = "" if action.nargs == 0 else f" {value}"
            shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            text = (action.help or "").replace("|", "\\|").replace("%%", "%")
            if action.choices:
                text = ": ".join(filter(None, [text, ", ".join(map(str, action.choices))]))
            lines.append(f"| `{shown}{value if action.option_strings else ''}` | {text} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "docs/flags.md": flags_page,
    "docs/ops.md": ops_page,
    "docs/accuracy.md": accuracy_page,
    "docs/coverage.md": coverage,
    "src/onnxgrad/kernels.pyi": kernels_stub,
}


def main() -> None:
    stale = []
    for name, page in PAGES.items():
        path, text = ROOT / name, page()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        raise SystemExit(f"{', '.join(stale)}: not up to date, run python tools/make_docs.py")


if __name__ == "__main__":
    main()
