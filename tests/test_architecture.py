"""The arrows of docs/architecture.md, kept by a machine: who may include or import what, and how large things grow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import onnxgrad
from onnxgrad import errors

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "native"
PACKAGE = ROOT / "src" / "onnxgrad"

# A folder of native/ may include these folders, and of other libraries only what is listed.
MAY_INCLUDE = {
    "core": {"core"},
    "ops": {"core", "ops"},
    "train": {"core", "train"},
    "hosts": {"core", "train", "hosts"},
    "tests": {"core", "ops", "tests"},
}
LIBRARIES = {
    "nanobind": {
        "hosts/numpy.cpp",
        "hosts/numpy_arguments.h",
        "hosts/numpy_checks.h",
        "hosts/numpy_optimizers.h",
    },
    "immintrin.h": {"core/vector.h"},
    "arm_neon.h": {"core/vector.h"},
    "pthread.h": {"core/platform.cpp"},
    "sched.h": {"core/platform.cpp"},
    "unistd.h": {"core/platform.cpp"},
    "windows.h": {"core/platform.cpp"},
    "hosts/ort_abi.h": {
        "hosts/ort.cpp",
        "hosts/ort_shapes.h",
        "hosts/ort_attributes.h",
        "hosts/ort_fusions.h",
    },
}

# A part of the package may import these parts.
BASE = {"errors", "notes", "contracts", "files", "graph"}
SHOWN = {"texts", "charts"}  # numbers and pictures
MAY_IMPORT = {
    "errors": set(),
    "notes": set(),
    "texts": set(),
    "charts": {"files", "texts"},
    "contracts": {"errors"},
    "kernels": {"errors", "contracts"},
    "ort": {"errors", "contracts", "files"},
    "files": {"errors", "files"},
    "graph": {"errors", "contracts", "files", "graph"},
    "autodiff": {*BASE, "autodiff"},
    "model": {*BASE, "kernels", "autodiff", "model"},
    "data": {"errors", "notes", "files", "data"},
    "train": {*BASE, *SHOWN, "kernels", "ort", "files", "autodiff", "model", "data", "train"},
    "inspection": {*BASE, "ort", "autodiff", "model", "inspection"},
    "checking": {*BASE, "ort", "autodiff", "checking"},
    "dropin": {*BASE, "ort", "files", "autodiff", "model", "train", "dropin"},
    "sklearn": {"errors", "files", "graph", "model", "train", "sklearn"},
    "stepfile": {*BASE, "files", "model", "train", "stepfile"},
    "flower": {"errors", "files", "train", "flower"},
    "api": {"dropin"},
    "artifacts": {"dropin"},
    "onnxblock": {"dropin"},
    "demo": {"files", "demo"},
    "job": {"errors", "notes", *SHOWN, "files", "inspection", "data", "model", "train", "job"},
    "cli": {
        *BASE,
        *SHOWN,
        "model",
        "stepfile",
        "flower",
        "kernels",
        "ort",
        "files",
        "autodiff",
        "inspection",
        "checking",
        "dropin",
        "data",
        "train",
        "demo",
        "job",
        "cli",
    },
    "__init__": {"errors", "kernels", "ort"},
    "__main__": {"cli"},
}

# What opens, replaces or removes a file by its name. Only onnxgrad.files does; the rest is listed with its reason.
OPENS = {
    "open", "os.open", "os.replace", "os.rename", "os.unlink", "os.remove", "np.load", "np.memmap", "np.fromfile",
    "onnx.load", "onnx.save", "ir.load", "ir.save", "load_file", "save_file", "Image.open", "zipfile.ZipFile",
    ".read_bytes", ".read_text", ".write_bytes", ".write_text", ".unlink", ".rmdir", ".rename",
    "shutil.rmtree", "shutil.copyfile", "shutil.copy", "shutil.move",
}  # fmt: skip
MAY_OPEN = {
    "__main__.py": {"os.open"},  # the null device, in place of closed streams
    "cli/texts.py": {"os.open"},  # the null device, in place of a closed pipe
    "cli/demo.py": {"shutil.rmtree", "np.load"},  # its own earlier run, and the dataset it wrote
    "data/pixels.py": {"Image.open"},  # of bytes that onnxgrad.files read
    "demo/digits.py": {"np.load", ".open"},  # a resource of the package
    "dropin/onnxblock/blocks.py": {"onnx.load", "onnx.save"},  # in a temporary folder of its own
    "stepfile/programs/__init__.py": {".read_text"},  # a resource of the package
    "flower/project/__init__.py": {".read_text"},  # a resource of the package
    "train/files/checkpoint.py": {
        "os.rename", "shutil.rmtree", ".rename",
    },
    "train/files/export.py": {"open", ".unlink"},  # in its own work folder
}  # fmt: skip

PUBLIC = {
    "errors", *(n for n in vars(errors) if n.endswith("Error")),
    "get_num_threads", "kernels", "library_path", "register", "session", "set_num_threads",
    "grad", "vjp", "rule", "fused", "no_gradient", "unsupported", "Trainer", "inspect",
}  # fmt: skip


def native_files() -> list[Path]:
    return sorted(p for p in NATIVE.rglob("*") if p.suffix in {".h", ".cpp"})


def fuzz_files() -> list[Path]:
    return sorted(p for p in (ROOT / "fuzz").iterdir() if p.suffix in {".h", ".cpp"})


def python_files() -> list[Path]:
    return sorted(
        p
        for folder in ("src", "tests", "bench", "tools", "attacks", "fuzz")
        for p in (ROOT / folder).rglob("*.py")
    )


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", native_files(), ids=relative)
def test_includes_follow_the_arrows(path):
    folder = path.relative_to(NATIVE).parts[0]
    assert folder in MAY_INCLUDE, f"MAY_INCLUDE has no line for {folder}"
    for quote, name in re.findall(r'#include ([<"])([^>"]+)', path.read_text()):
        if quote == '"' and not name.endswith(".inc"):
            assert name.split("/")[0] in MAY_INCLUDE[folder], f"{relative(path)} includes {name}"
        for library, allowed in LIBRARIES.items():
            if name.startswith(library):
                assert str(path.relative_to(NATIVE)) in allowed, f"{relative(path)} includes {name}"


@pytest.mark.parametrize("path", native_files(), ids=relative)
def test_intrinsics_stay_in_the_core(path):
    if path.relative_to(NATIVE).parts[0] != "core":
        assert not re.search(r"\b_mm(256|512)?_\w+\(", path.read_text())


def test_every_package_stands_in_the_table_of_layers():
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = [p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"]
    missing = [name for name in folders if f"`src/onnxgrad/{name}`" not in page]
    assert not missing, f"docs/architecture.md has no layer for {missing}"


def imported_parts(path: Path) -> set[str]:
    """The parts of onnxgrad that a file imports, wherever in the file."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{a.name}" if node.module == "onnxgrad" else node.module
                for a in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        parts |= {n.split(".")[1] for n in names if n.startswith("onnxgrad.")}
    return parts - {"_native"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_imports_follow_the_arrows(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert part in MAY_IMPORT, f"MAY_IMPORT has no line for {part}"
    assert imported_parts(path) <= MAY_IMPORT[part]


def called_names(path: Path) -> set[str]:
    """The names of what a file calls: `open`, `os.open`, and `.unlink` for a method of something."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                found.add(function.id)
            elif isinstance(function, ast.Attribute):
                found.add(f".{function.attr}")
                if isinstance(function.value, ast.Name):
                    found.add(f"{function.value.id}.{function.attr}")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_files_are_opened_in_one_room(path):
    part = path.relative_to(PACKAGE)
    if part.parts[0] != "files":
        assert called_names(path) & OPENS <= MAY_OPEN.get(str(part), set())


def runs_later(node: ast.AST) -> bool:
    """A function, or what only a type checker sees."""
    checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    return checked or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_onnxruntime_and_torch_are_never_imported_at_the_top(path):
    tree = ast.parse(path.read_text())
    guarded = {id(n) for node in ast.walk(tree) if runs_later(node) for n in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            assert not any(n.split(".")[0] == "torch" for n in names), (
                "torch is for tests and benchmarks only"
            )
            if id(node) not in guarded:
                assert not any(n.split(".")[0] == "onnxruntime" for n in names)


def test_public_names():
    assert set(onnxgrad.__all__) == PUBLIC
    assert all(hasattr(onnxgrad, name) for name in PUBLIC)


TABLES = (
    "tests/cases/",
    "tests/reference/",
    "bench/lines.py",
    "src/onnxgrad/autodiff/rules/",
    "tests/autodiff/",
)


# Folders of tests that mirror no folder of code: tables, recordings, what is compared live, whole walks.
OF_NO_CODE = {"cases", "reference", "golden", "live", "docs", "stories"}
# tests/train is src/onnxgrad/train, tests/hosts native/hosts, tests/tools tools
MIRRORED = (PACKAGE, NATIVE, ROOT)


def test_folders_of_tests_mirror_folders_of_code():
    """kernels/ is native/ops and what calls it; a folder or file of code gives a folder of tests its name."""
    for folder in (p for p in (ROOT / "tests").rglob("*") if p.is_dir()):
        part = folder.relative_to(ROOT / "tests")
        if part.parts[0] in OF_NO_CODE or "__pycache__" in part.parts:
            continue
        code = Path("ops", *part.parts[1:]) if part.parts[0] == "kernels" else part
        found = any((root / code).is_dir() for root in MIRRORED)
        assert found, (
            f"tests/{part} mirrors no folder of the package, of native/ or of the repository"
        )


def test_files_of_tests_stand_in_folders():
    """At the top is what concerns the whole tree."""
    whole = {"architecture", "contracts", "imports", "lists", "public_face", "seams"}
    assert {p.stem for p in (ROOT / "tests").glob("test_*.py")} == {f"test_{n}" for n in whole}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=relative)
def test_live_tests_stand_in_one_folder(path):
    marked = re.search(r"^(?:pytestmark = |@)pytest\.mark\.live\b", path.read_text(), re.MULTILINE)
    assert bool(marked) == (path.parent == ROOT / "tests" / "live")


def test_there_is_one_case():
    """Case is a row of an operator's table; other tables have rows of other names, such as RuleCase."""
    defining = re.compile(r"^class Case\b", re.MULTILINE)
    found = [p for p in (ROOT / "tests").rglob("*.py") if defining.search(p.read_text())]
    assert [relative(p) for p in found] == ["tests/cases/case.py"]


@pytest.mark.parametrize("path", [*native_files(), *fuzz_files(), *python_files()], ids=relative)
def test_files_stay_small_enough_to_read(path):
    if not relative(path).startswith(TABLES):
        assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_functions_stay_small_enough_to_read(path):
    if relative(path).startswith(TABLES):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is longer than 60 lines"


@pytest.mark.parametrize("path", [*native_files(), *fuzz_files(), *python_files()], ids=relative)
def test_no_loose_ends(path):
    if path.name != "test_architecture.py":
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text())


DEFINITION = re.compile(
    r"^[ \t]*(?:template\s*<[^;{]*>\s*)?(?:class|struct|union|enum(?:\s+class)?)\s+"
    r"(?:\[\[\w+\]\]\s+|alignas\([^)]*\)\s+)?(\w+)(?!\w|\s*<)[^;{()=]*\{",
    re.MULTILINE,
)


def test_a_class_name_of_native_means_one_thing():
    """Nested ones too: a reader, and a search, sees the name alone. Specialisations share a name."""
    where = {}
    for path in native_files():
        for name in DEFINITION.findall(path.read_text()):
            where.setdefault(name, []).append(relative(path))
    assert len(where) > 150  # the pattern still finds them
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


@pytest.mark.parametrize(
    "folder", sorted(p for p in (NATIVE / "ops").iterdir() if p.is_dir()), ids=relative
)
def test_a_large_folder_of_operators_begins_with_a_map(folder):
    """README.md: which file chooses, which algorithm is for which shape, in the order of the walk."""
    files = sorted(p.name for p in folder.iterdir() if p.suffix in {".h", ".cpp"})
    if len(files) <= 6:
        return
    readme = folder / "README.md"
    assert readme.exists(), f"{relative(folder)} has {len(files)} files and no README.md"
    named = set(re.findall(r"`(\w+\.(?:h|cpp))`", readme.read_text()))
    assert [name for name in files if name not in named] == [], "files that the map leaves out"
    assert sorted(named - set(files)) == [], "files of the map that are not there"


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_python_is_formatted_and_clean(command):
    ruff = [sys.executable, "-m", "ruff", *command, "-q", str(ROOT)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_native_is_formatted():
    """One version of clang-format for everybody: another one lays out other lines."""
    clang_format = Path(sys.executable).with_name("clang-format")
    if not clang_format.exists():
        pytest.skip("clang-format is not installed: pip install -e '.[test]'")
    pinned = re.search(r'"clang-format==([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    version = subprocess.run([clang_format, "--version"], capture_output=True, text=True).stdout
    assert pinned in version, f"{version.strip()}, expected {pinned}: pip install -e '.[test]'"
    files = [*native_files(), *NATIVE.rglob("*.inc"), *fuzz_files()]
    check = [clang_format, "--dry-run", "-Werror", *files]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, f"make format mends it\n{done.stderr[-3000:]}"


def columns(line: str) -> int:
    """What a line takes on the screen: the hat of x̂ takes no column of its own."""
    return sum(not unicodedata.combining(c) for c in line)


@pytest.mark.parametrize("path", native_files(), ids=relative)
def test_native_lines_fit_the_page(path):
    """clang-format leaves comments alone, so that formulas stay as they were written."""
    wide = [n for n, line in enumerate(path.read_text().splitlines(), 1) if columns(line) > 100]
    assert wide == [], f"{relative(path)}: lines of more than 100 columns"
