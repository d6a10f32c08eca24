"""What every Python of a run of tests does first, those that tests start included (see sitecustomize.py).

`ONNXGRAD_RECORD=folder`: note the lines that run, under the name of the test (which pytest keeps in the environment).
`ONNXGRAD_MUTANT=module:file`: import that module of the package from the changed source in the file.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


class Changed(importlib.abc.MetaPathFinder):
    """Finds one module as the others would, and gives it other source."""

    def __init__(self, module: str, source: str):
        self.module, self.source, self._busy = module, source, False

    def find_spec(self, name, path=None, target=None):
        if name != self.module or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        spec.loader = Loader(name, spec.origin, self.source)
        return spec


class Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str):
        super().__init__(name, path)
        self._source = source

    def get_code(self, name):  # never from, nor into, a .pyc file
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, name):
        return self._source


def change(module: str, source: str) -> None:
    sys.meta_path.insert(0, Changed(module, source))


def start_coverage(context: str):
    """Begin to record the lines of the package, in a data file of this process."""
    import coverage

    recording = coverage.Coverage(
        data_file=os.path.join(os.environ["ONNXGRAD_RECORD"], "lines"),
        data_suffix=True,
        source_pkgs=["onnxgrad"],
        config_file=False,
        context=context or None,
        messages=False,
    )
    recording.start()
    return recording


def begin() -> None:
    """Do what the environment asks for."""
    mutant, test = os.environ.get("ONNXGRAD_MUTANT"), os.environ.get("PYTEST_CURRENT_TEST")
    if mutant:
        module, _, file = mutant.partition(":")
        with open(file, encoding="utf-8") as source:
            change(module, source.read())
    elif os.environ.get("ONNXGRAD_RECORD") and test:
        import atexit

        recording = start_coverage(test.rpartition(" (")[0])
        atexit.register(lambda: (recording.stop(), recording.save()))
