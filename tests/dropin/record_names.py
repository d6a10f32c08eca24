"""Print every public name of onnxruntime.training's artifacts, api and onnxblock with its signature, as JSON.

Runs in the old package's environment with `onnxruntime.training` as its argument, and in ours with `onnxgrad`.
"""

import enum
import importlib
import inspect
import json
import sys

MODULES = [
    "artifacts", "api", "api.checkpoint_state", "api.lr_scheduler", "api.module", "api.optimizer",
    "onnxblock", "onnxblock.blocks", "onnxblock.checkpoint_utils", "onnxblock.loss",
    "onnxblock.loss.loss", "onnxblock.model_accessor", "onnxblock.onnxblock", "onnxblock.optim",
    "onnxblock.optim.optim",
]  # fmt: skip


def main(root):
    found = {
        name: describe_module(importlib.import_module(f"{root}.{name}"), root) for name in MODULES
    }
    json.dump(found, sys.stdout, indent=1, sort_keys=True)


def describe_module(module, root):
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {}
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            if value.__name__.startswith(root) and name in getattr(module, "__all__", []):
                found[name] = "module"
        elif getattr(value, "__module__", "").startswith(root):
            found[name] = describe(value)
    return found


def describe(value):
    if not inspect.isclass(value):
        return signature(value)
    if issubclass(value, enum.Enum):
        return {m.name: m.value for m in value}
    members = {"__init__": signature(value.__init__)}
    for name in dir(value):
        member = inspect.getattr_static(value, name)
        if name.startswith("_") and name not in ("__call__", "__getitem__", "__setitem__", "__len__",
                                                 "__contains__", "__iter__", "__repr__"):  # fmt: skip
            continue
        if isinstance(member, property):
            members[name] = "property" if member.fset is None else "property that can be set"
        elif callable(getattr(value, name)):
            members[name] = signature(getattr(value, name))
    return members


def signature(function):
    """Names, kinds and defaults; types are left out: the old ones are written for Python 3.8."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return "builtin"
    return [f"{p.kind.name.lower()} {p.name}" + ("" if p.default is p.empty else f" = {p.default!r}")
            for p in parameters]  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
