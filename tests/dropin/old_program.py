"""Run a program in the old package's environment: `python old_program.py program.py argument ...`.

`onnxruntime.training` imports torch at its top, for parts that the programs here do not use. An empty stand-in saves
installing it.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
from unittest.mock import MagicMock


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime.training.ortmodule":
            raise ImportError("not needed")
        if name.split(".")[0] in ("torch", "apex"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, StandIn())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
