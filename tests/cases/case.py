"""Case: one row of an operator's table, and what can be done with it.

    Case("middle axis", dY=normal(2, 5, 3), Y=simplex(2, 5, 3, axis=1), axis=1)

Samples are inputs, everything else is an attribute. A case draws its numbers from a generator seeded by its title,
so it is the same in every run and does not change when a neighbour does.
"""

from __future__ import annotations

import dataclasses
import importlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxgrad import kernels
from onnxgrad.contracts import Contract

Sample = Callable[[np.random.Generator], np.ndarray]

DTYPES = (np.float32, np.float64)


@dataclasses.dataclass(frozen=True)
class Case:
    """`rtol` replaces the contract's bound and needs a `why`; `outputs` asks for some outputs only."""

    title: str
    samples: Mapping[str, Sample]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...] | None = None
    rtol: float | None = None
    why: str = ""
    contract: Contract | None = None

    def __init__(self, title: str, *, outputs=None, rtol=None, why="", **arguments):
        if rtol is not None and not why:
            raise ValueError(f"case '{title}' widens the tolerance without saying why")
        samples = {k: v for k, v in arguments.items() if callable(v)}
        attributes = {k: v for k, v in arguments.items() if k not in samples}
        for name, value in dict(
            title=title, samples=samples, attributes=attributes, outputs=outputs, rtol=rtol, why=why
        ).items():
            object.__setattr__(self, name, value)

    def of(self, contract: Contract) -> Case:
        """The same case, bound to its operator."""
        bound = Case.__new__(Case)
        for field in dataclasses.fields(self):
            object.__setattr__(bound, field.name, getattr(self, field.name))
        object.__setattr__(bound, "contract", contract)
        return bound

    def __str__(self) -> str:
        return f"{self.contract.name}: {self.title}"

    # ---- data

    def inputs(self, dtype) -> dict[str, np.ndarray]:
        """The inputs by name; those of type T in `dtype`, the others as drawn."""
        rng = np.random.default_rng(zlib.crc32(self.title.encode()))
        arrays = {}
        for tensor in self.contract.inputs:
            if tensor.name in self.samples:
                drawn = np.asarray(self.samples[tensor.name](rng))
                arrays[tensor.name] = drawn.astype(dtype) if tensor.type == "T" else drawn
        unknown = set(self.samples) - set(arrays)
        assert not unknown, f"{self}: no input is called {unknown}"
        return arrays

    def wanted(self) -> tuple[str, ...]:
        """The names of the outputs that the case asks for."""
        return self.outputs or tuple(t.name for t in self.contract.outputs)

    # ---- running

    def run_numpy(self, dtype, **more) -> dict[str, np.ndarray]:
        """Through `onnxgrad.kernels`."""
        kernel = getattr(kernels, self.contract.python_name)
        result = kernel(**self.inputs(dtype), **self.attributes, outputs=self.wanted(), **more)
        return self._named(result)

    def run_reference(self, dtype) -> dict[str, np.ndarray]:
        """The exact result for the inputs as `dtype` holds them."""
        return self._named(self._call_reference(self.contract.python_name, dtype))

    def _call_reference(self, function: str, dtype):
        module = importlib.import_module(f"reference.{self.contract.python_name}")
        inputs = {
            k: v.astype(np.float64) if v.dtype == dtype else v
            for k, v in self.inputs(dtype).items()
        }
        with np.errstate(all="ignore"):
            return getattr(module, function)(**inputs, **self._rounded_attributes())

    def _rounded_attributes(self) -> dict[str, Any]:
        """A float attribute has its float32 value in double kernels too."""
        return {
            k: float(np.float32(v)) if isinstance(v, float) else v
            for k, v in {**self._float_defaults(), **self.attributes}.items()
        }

    def _float_defaults(self) -> dict[str, Any]:
        return {a.name: a.default for a in self.contract.attributes if isinstance(a.default, float)}

    def _named(self, result) -> dict[str, np.ndarray]:
        names = [t.name for t in self.contract.outputs]
        values = result if len(names) > 1 else (result,)
        if isinstance(result, dict):
            values = [result.get(n) for n in names]
        return {n: v for n, v in zip(names, values, strict=True) if n in self.wanted()}

    # ---- judging

    def assert_close(self, got: dict[str, np.ndarray], dtype) -> None:
        """Within the bound that the contract promises, by the contract's own measure."""
        expected = self.run_reference(dtype)
        for name in self.wanted():
            assert got[name].dtype == self._dtype_of(name, dtype), f"{name} is {got[name].dtype}"
            assert got[name].shape == np.shape(expected[name]), (
                f"{name} has shape {got[name].shape}"
            )
            error = self.error(name, got[name], expected[name], dtype)
            bound = self.bound(name, dtype)
            assert error <= bound, f"{self}: {name} is off by {error:.3g}, allowed {bound:.3g}"

    def assert_same_on_threads(self, dtype, threads=(1, 2)) -> None:
        """Within the bound, and the same bits on any number of threads."""
        found = []
        for count in threads:
            kernels.set_num_threads(count)
            found.append(self.run_numpy(dtype))
        self.assert_close(found[0], dtype)
        for other in found[1:]:
            assert all(found[0][name].tobytes() == other[name].tobytes() for name in other)

    def _dtype_of(self, output, dtype):
        kind = next(t.type for t in self.contract.outputs if t.name == output)
        return dtype if kind == "T" else np.dtype(kind)

    def bound(self, output: str, dtype) -> float:
        accuracy = self.contract.accuracy_of(output)
        return self.rtol or (accuracy.float32 if dtype == np.float32 else accuracy.float64)

    def error(self, output: str, got, expected, dtype) -> float:
        """The largest error in the output's measure; infinite where NaN or infinity differ."""
        got = got.astype(np.float64)
        special = ~np.isfinite(expected)
        if not np.array_equal(got[special], expected[special], equal_nan=True):
            return np.inf
        if np.any(~np.isfinite(got[~special])):
            return np.inf
        difference = np.abs(np.where(special, 0.0, got - np.where(special, 0.0, expected)))
        with np.errstate(all="ignore"):
            return float(
                self._measured(output, difference, np.where(special, 0.0, expected), dtype)
            )

    def _measured(self, output, difference, expected, dtype):
        if difference.size == 0:
            return 0.0
        measure = self.contract.accuracy_of(output).measure
        if measure.startswith("ulp"):
            return _largest_ratio(difference, self._ulps(expected, dtype))
        if measure.startswith("relative to the row"):
            return _largest_ratio(difference, self._call_reference("scale", dtype))
        return _largest_ratio(np.sqrt(np.mean(difference**2)), np.sqrt(np.mean(expected**2)))

    def _ulps(self, expected, dtype):
        """One ulp of max(|g|, 1/8) per unit of dY, g the derivative; in double simply max(|g|, 1/8)."""
        dy = np.abs(self.inputs(dtype)["dY"].astype(np.float64))
        slope = np.maximum(np.abs(expected) / np.where(dy > 0, dy, 1), 1 / 8)
        if dtype == np.float64:
            return slope * dy
        return 2.0 ** (np.floor(np.log2(slope)) - 23) * dy


def _largest_ratio(difference, scale) -> float:
    ratio = np.where(difference == 0, 0.0, difference / np.asarray(scale))
    return float(np.nanmax(ratio, initial=0.0))
