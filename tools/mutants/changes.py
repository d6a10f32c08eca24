"""The small mistakes that a mutant can have: each operator of change reads a node of the syntax tree and says what
else could stand there.

Only what decides something is changed. Texts, annotations, imports and what a `raise` says stay as they are: another
wording does the same. That a `raise` is there at all is changed. Limits and sizes that somebody chose (a number
from 10 on or a fraction, under a name in capitals), how long something waits, and when a file is closed or flushed
stay, too: one more or less is another choice, and no mistake.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any", "Add": "Sub", "Sub": "Add", "Mul": "Div",
            "Div": "Mul", "Min": "Max", "Max": "Min", "Greater": "GreaterOrEqual", "Less": "LessOrEqual",
            "GreaterOrEqual": "Greater", "LessOrEqual": "Less", "And": "Or", "Or": "And",
            "ReduceSum": "ReduceMean", "ReduceMean": "ReduceSum", "maximum": "minimum", "minimum": "maximum",
            "sum": "mean", "mean": "sum", "ceil": "floor", "floor": "ceil", "startswith": "endswith",
            "endswith": "startswith", "append": "remove", "extend": "append"}  # fmt: skip
# Two arguments in either order; settings that only say how something looks or reads; what only guards a mistake here.
COMMUTE = {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "max", "min", "maximum", "minimum", "array_equal",
           "gcd", "samefile", "allclose"}  # fmt: skip
LOOKS = {"help", "metavar", "because", "instead", "description", "prog", "epilog", "usage", "title", "box", "pad_edge",
         "padding", "header_style", "style", "no_wrap", "justify", "overflow", "strict", "encoding", "stacklevel",
         "show_header", "expand", "highlight", "indent", "formatter_class", "hint", "lineterminator",
         "slots", "frozen", "repr", "timeout"}  # fmt: skip
# What only takes time or gives something back.
HOUSEKEEPING = {"sleep", "flush", "fsync", "close", "collect", "simplefilter", "filterwarnings"}
CHOSEN_FROM = 10


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text from `start` to `end` (line from 1, byte of it) becomes `text`."""

    path: str  # below src/
    kind: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    was: str

    @property
    def line(self) -> int:
        return self.start[0]

    @property
    def module(self) -> str:
        parts = self.path.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def applied(self, source: str) -> str:
        """Return the source with the change in it."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.start[0] - 1, self.end[0] - 1
        before, after = lines[first][: self.start[1]], lines[last][self.end[1] :]
        return b"".join(
            [*lines[:first], before, self.text.encode(), after, *lines[last + 1 :]]
        ).decode()

    @property
    def change(self) -> str:
        """What it changes, without the line, which moves."""
        was, now = (" ".join(t.split()) for t in (self.was, self.text))
        return f"{self.path}: {self.kind}: {was[:70]} → {now[:70]}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}{self.change.removeprefix(self.path)}"


def mutants(path: str, source: str) -> list[Mutant]:
    """Return every change of a file, in the order of its lines."""
    found, lines = {}, source.encode().splitlines(keepends=True)
    for node, function in _deciding(ast.parse(source)):
        for kind, replaced, text in _changes(node, function):
            start = replaced.lineno, replaced.col_offset
            end = replaced.end_lineno, replaced.end_col_offset
            mutant = Mutant(path, kind, start, end, text, _between(lines, start, end))
            found[start, end, text] = mutant
    return [found[key] for key in sorted(found)]


def _between(lines: list[bytes], start: tuple[int, int], end: tuple[int, int]) -> str:
    block = lines[start[0] - 1 : end[0]]
    block[-1] = block[-1][: end[1]]
    block[0] = block[0][start[1] :]
    return b"".join(block).decode()


def is_another_program(mutant: Mutant, source: str) -> bool:
    """Whether the change can be parsed, and is one."""
    try:
        return ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return False


def _deciding(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Walk the nodes whose change could be seen, each with the function around it."""
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while waiting:
        node, function = waiting.pop()
        yield node, function
        inner = node if isinstance(node, (ast.FunctionDef, ast.Lambda)) else function
        waiting += [(child, inner) for child in _parts(node)]


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr)):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if _is_housekeeping(node) or _is_chosen(node):
        return
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.keyword) and node.arg in LOOKS:
            continue
        if name in ("annotation", "returns", "decorator_list", "type_comment"):
            continue
        yield from (
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)
        )


# ---- the operators of change

Change = tuple[str, ast.AST, str]  # what kind, the node that is replaced, by what


def _changes(node: ast.AST, function: ast.AST | None) -> Iterator[Change]:
    for operator in OPERATORS:
        yield from operator(node, function)


def comparison(node: ast.AST, function) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
        yield "comparison", node, _text(other)


def arithmetic(node: ast.AST, function) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield (
            "arithmetic",
            node,
            _text(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)),
        )
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC and not _is_text(node.value):
        other = ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
        yield "arithmetic", node, ast.unparse(other)


def logic(node: ast.AST, function) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and, or", node, _text(ast.BoolOp(other, node.values))
        yield "condition dropped", node, _text(node.values[0])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        number = isinstance(node.operand, ast.Constant)
        kind = "not dropped" if isinstance(node.op, ast.Not) else "sign"
        yield kind, node, ast.unparse(node.operand) if number else _text(node.operand)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield "condition negated", node.test, f"(not {_text(node.test)})"
    if isinstance(node, ast.comprehension) and node.ifs:
        yield "filter dropped", node.ifs[0], "True"


def constant(node: ast.AST, function) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield "constant", node, str(not node.value)
    elif isinstance(node.value, int):
        yield "constant", node, str(node.value + 1)
        if node.value:
            yield "constant", node, str(node.value - 1)
    elif isinstance(node.value, float):
        yield "constant", node, repr(node.value * 2 if node.value else 1.0)


def statement(node: ast.AST, function) -> Iterator[Change]:
    if function is None:
        return
    if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
        return
    if isinstance(node, ast.Expr) and _is_housekeeping(node.value):
        return
    calls = isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))
    if calls or isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)):
        yield "statement removed", node, "pass"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        yield "statement removed", node, "pass"
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "returns nothing", node, "return None"
    if isinstance(node, ast.Continue):
        yield "continue, break", node, "break"
    if isinstance(node, ast.Break):
        yield "continue, break", node, "continue"


def call(node: ast.AST, function) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    plain = [a for a in node.args if not isinstance(a, ast.Starred)]
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    different = len(plain) == len(node.args) >= 2 and ast.dump(plain[0]) != ast.dump(plain[1])
    if different and called not in COMMUTE:
        swapped = [plain[1], plain[0], *plain[2:]]
        yield "arguments swapped", node, _text(ast.Call(node.func, swapped, node.keywords))
    for left_out in node.keywords:
        if left_out.arg is not None and left_out.arg not in LOOKS:
            rest = [k for k in node.keywords if k is not left_out]
            yield "setting not passed on", node, _text(ast.Call(node.func, node.args, rest))


def name(node: ast.AST, function) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in OPPOSITE:
        yield "the opposite", node.func, OPPOSITE[node.func.id]
    if isinstance(node.func, ast.Attribute) and node.func.attr in OPPOSITE:
        other = ast.Attribute(node.func.value, OPPOSITE[node.func.attr], ast.Load())
        yield "the opposite", node.func, ast.unparse(other)


def slices(node: ast.AST, function) -> Iterator[Change]:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        s = node.slice
        for other in (ast.Slice(None, s.upper, s.step), ast.Slice(s.lower, None, s.step)):
            yield "slice", node, ast.unparse(ast.Subscript(node.value, other, node.ctx))


OPERATORS: tuple[Callable, ...] = (
    comparison, arithmetic, logic, constant, statement, call, name, slices,
)  # fmt: skip


def _text(node: ast.expr) -> str:
    """An expression that can stand anywhere."""
    text = ast.unparse(node)
    simple = isinstance(node, (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript))
    return text if simple else f"({text})"


def _is_text(node: ast.AST) -> bool:
    """Whether a text is added to or formatted: its wording decides nothing."""
    return any(
        isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", None), str)
        for n in ast.walk(node)
        if isinstance(n, (ast.Constant, ast.JoinedStr))
    )


def _is_housekeeping(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in HOUSEKEEPING


def _is_chosen(node: ast.AST) -> bool:
    """Whether a name in capitals gets a number that could as well be another."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = all(isinstance(t, ast.Name) and t.id.isupper() for t in targets)
    try:
        value = eval(compile(ast.Expression(node.value), "", "eval"), {"__builtins__": {}})
    except Exception:  # no plain number
        return False
    return named and type(value) in (int, float) and (value >= CHOSEN_FROM or type(value) is float)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
