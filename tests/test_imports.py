"""Every module of the lower layers can be the first that a program imports: no two wait for each other."""

import subprocess
import sys
from pathlib import Path

import onnxgrad

PROGRAM = """
import importlib, sys
import onnxgrad._native
wrong = []
for name in sys.argv[1:]:
    for known in [m for m in sys.modules if m.split(".")[0] == "onnxgrad" and m != "onnxgrad._native"]:
        del sys.modules[known]
    try:
        importlib.import_module(name)
    except ImportError as error:
        if "circular import" in str(error):
            wrong.append(f"{name}: {error}")
if wrong:
    sys.exit("\\n".join(wrong))
"""


def test_no_module_needs_another_one_to_be_imported_before_it():
    root = Path(onnxgrad.__file__).parent
    names = [
        ".".join(("onnxgrad", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted((*root.glob("files/*.py"), *root.glob("graph/*.py"), root / "ort.py"))
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
