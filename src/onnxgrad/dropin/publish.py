"""Makes a package importable under a second, public name: `onnxgrad.api` is `onnxgrad.dropin.api`."""

from __future__ import annotations

import importlib
import pkgutil
import sys


def publish(package: str, public: str) -> None:
    """Let `public` and its submodules be the very modules of `package`."""
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{package}."):
        importlib.import_module(found.name)
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            sys.modules[public + name.removeprefix(package)] = module
