"""The seams between files: nobody reaches into another object, nobody hides an import without a reason."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "onnxgrad"
FILES = sorted(PACKAGE.rglob("*.py"))

# What takes a third of a second or more to import, and a command such as `onnxgrad --help` never needs.
SLOW = {"onnx", "onnx.reference", "onnx_ir", "onnxruntime"}
# Packages of an extra, or that one kind of file needs: `pip install onnxgrad` works without them.
OPTIONAL = {
    "IPython", "PIL", "fcntl", "huggingface_hub", "flwr", "jinja2", "mpi4py", "pyarrow", "resource", "soundfile",
    "tensorboardX", "tokenizers", "yaml", "rich",
}  # fmt: skip
# The object of onnxruntime's C interface has no public name; os._exit and a named tuple's _replace are public.
FOREIGN = {"_ortvalue", "_exit", "_replace"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file, walked once."""
    return tuple(ast.walk(parsed(path)))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(path: Path) -> set[str]:
    """The private names that a file defines: methods, functions, fields of its own classes."""
    found = set()
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and is_self(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_reads(path: Path) -> Iterator[str]:
    """`other._field`, where no class of this file has such a field; and `self._a._b` always."""
    own = own_names(path)
    for node in nodes_of(path):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr):
            continue
        chained = isinstance(node.value, ast.Attribute)
        if not is_self(node.value) and (chained or node.attr not in own | FOREIGN):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nobody_reads_a_private_field_of_another_file(path):
    assert list(private_reads(path)) == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nobody_imports_a_private_name_of_another_file(path):
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onnxgrad."):
            # a module `_cells.py` is private to its folder; a name is private to its file
            files = {p.stem for p in path.parent.glob("*.py")}
            names = [a.name for a in node.names if is_private(a.name) and a.name not in files]
            assert names == [], f"line {node.lineno}: {ast.unparse(node)}"


# ---- imports inside functions


def imports(nodes: Iterator[ast.AST]) -> Iterator[tuple[int, str]]:
    """The modules that statements import, each with its line; `from a import b` may mean a.b."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield node.lineno, inner if file_of(inner) else node.module


@cache
def file_of(module: str) -> Path | None:
    path = SOURCE / Path(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists():
            return file
    return None


@cache
def imports_at_once(path: Path) -> tuple[str, ...]:
    """The modules that importing a file imports."""
    return tuple(module for _, module in imports(at_once(parsed(path))))


def at_once(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements that run when a file is imported."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            if checked or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            yield node
            waiting.append(node)


@cache
def loads(module: str) -> frozenset[str]:
    """The slow packages that importing a module of ours, or of others, brings along."""
    found, waiting, seen = set(), [module], set()
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        found |= {parts[0], ".".join(parts[:2])} & SLOW
        for end in range(1, len(parts) + 1):  # importing a.b.c runs a and a.b first
            inner = ".".join(parts[:end])
            file = file_of(inner)
            if file is not None and inner not in seen:
                seen.add(inner)
                waiting += imports_at_once(file)
    return frozenset(found)


def hidden_imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(ast.walk(node))


# Its one import may be interrupted, or fail: that is what the file is for.
ENTRY = PACKAGE / "__main__.py"


@pytest.mark.parametrize("path", [f for f in FILES if f != ENTRY], ids=name_of)
def test_an_import_inside_a_function_guards_a_slow_or_optional_package(path):
    module = name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    already = loads(module)
    needless = [
        f"line {line}: {name}"
        for line, name in hidden_imports(path)
        if name.split(".")[0] not in OPTIONAL and not loads(name) - already
    ]
    assert needless == []


def test_looking_at_the_command_line_is_quick():
    """What the exceptions are for: nothing slow is loaded before a command runs."""
    assert loads("onnxgrad") == loads("onnxgrad.cli") == frozenset()
    program = "import sys, onnxgrad.cli; onnxgrad.cli.build_parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SLOW & set(done.stdout.split()) == set()
