"""Mistakes that were once planted by hand and that the tests of the time did not notice. Each must be noticed now.

A row: what is wrong, the file, the text that stands there once, the text in its place.
"""

from __future__ import annotations

from pathlib import Path

from changes import Mutant

ROWS = (
    ("the same shuffle in every epoch", "data/arrays.py",
     "return np.random.default_rng([self.seed, epoch])", "return np.random.default_rng([self.seed, 0])"),
    ("the same shuffle in every epoch of rows that are fetched", "data/arrays.py",
     "order = np.random.default_rng([self.seed, epoch])", "order = np.random.default_rng([self.seed, 0])"),
    ("the same shuffle in every epoch of text", "data/language.py",
     "default_rng([self.seed, epoch])", "default_rng([self.seed, 0])"),
    ("the same shuffle in every epoch of a table", "data/batches.py",
     "default_rng([self.seed, epoch]) if", "default_rng([self.seed, 0]) if"),
    ("validation rows are trained on, too", "train/loop/epoch_loop.py",
     "np.sort(order[:count]), np.sort(order[count:])", "np.sort(order[:count]), np.sort(order)"),
    ("the optimizer state of later groups is not restored", "train/step/buffers.py",
     "        for name, array in self.state().items():\n            array[...] = state[name]",
     "        for name, array in self.state().items():\n"
     "            if name.split('/', 1)[1] in self.segments[0].places:\n                array[...] = state[name]"),
    ("accumulate with clip_norm takes the norm of the sum", "train/step/training_step.py",
     "return math.sqrt(squares) / count", "return math.sqrt(squares)"),
    ("a short last group is divided by accumulate", "train/step/training_step.py",
     "return self._update(rates, self._waiting)", "return self._update(rates, self.accumulate)"),
    ("what comes after Warmup is not shifted", "train/schedules.py",
     "self.then.rate(base, step - self.steps)", "self.then.rate(base, step)"),
    ("what comes after Warmup is as long as the whole run", "train/schedules.py",
     "max(total - self.steps, 1)", "max(total, 1)"),
    ("threads are ignored by the session", "train/step/bound_session.py",
     "options.intra_op_num_threads = threads", "pass"),
    ("threads are ignored by the optimizer", "train/step/training_step.py",
     'with self.clock("optimizer"), kernels.at_most(self.threads):',
     'with self.clock("optimizer"), kernels.at_most(None):'),
    ("threads of the command line are not passed on", "job/run.py",
     "threads=config.threads or None, ", ""),
    ("--clip is not passed on", "job/run.py",
     "clip_norm=config.clip or None,", "clip_norm=None,"),
    ("--accumulate is not passed on", "job/run.py",
     "self.accumulate, asked = self.config.accumulate,", "self.accumulate, asked = 1,"),
    ("F1 counts classes that nobody has", "train/metrics.py",
     "float(each[present].mean())", "float(each.mean())"),
    ("all of equal inputs of Max and Min get the whole cotangent", "autodiff/rules/arithmetic.py",
     "share = op.Div(cotangent, op.Sum(*hits))", "share = cotangent"),
    ("Pow at 0: the slope of the base with the exponent 0", "autodiff/rules/arithmetic.py",
     "op.Where(op.Equal(Y, 0.0), 0.0, slope)", "slope"),
    ("Pow at 0: the logarithm of 0", "autodiff/rules/arithmetic.py",
     "return op.Where(zero, 0.0, op.Mul(dZ, op.Mul(Z, op.Log(op.Where(zero, 1.0, X)))))",
     "return op.Mul(dZ, op.Mul(Z, op.Log(X)))"),
    ("a start of Slice below -size stays negative", "autodiff/rules/shape.py",
     "begin = op.Max(op.Min(begin, size), 0)", "begin = op.Min(begin, size)"),
    ("the axis -1 of Gather is not counted from the end", "autodiff/rules/indexing.py",
     "    axis %= rank\n    # doutput [before,", "    axis = max(axis, 0)\n    # doutput [before,"),
    ("ConvTranspose with auto_pad forgets output_padding", "autodiff/rules/conv.py",
     "[padding[i]])", "[0])"),
    ("integers are divided with the floor in chains of shapes", "graph/constants.py",
     '"Div": _truncated,', '"Div": np.floor_divide,'),
    ("check tolerates a thousand times as much", "checking/problem.py",
     "np.dtype(np.float64), 1e-5, 1e-4)", "np.dtype(np.float64), 1e-5, 1e-1)"),
    ("check tolerates a thousand times as much in float", "checking/problem.py",
     "np.dtype(np.float32), 2e-3, 3e-2)", "np.dtype(np.float32), 2e-3, 3e1)"),
    ("only the first obstacle is reported", "inspection/report.py",
     "for problem in examination.problems:\n        count", "for problem in examination.problems[:1]:\n        count"),
)  # fmt: skip


def mutants(source: Path) -> list[Mutant]:
    """Return the rows as mutants. Raises ValueError where the text is not there, or more than once."""
    return [_mutant(source, *row) for row in ROWS]


def _mutant(source: Path, what: str, file: str, was: str, text: str) -> Mutant:
    path = f"onnxgrad/{file}"
    content = (source / path).read_text(encoding="utf-8")
    if content.count(was) != 1:
        raise ValueError(f"{path} has {content.count(was)} times what {what!r} replaces: {was}")
    at = content.index(was)
    return Mutant(path, what, _place(content, at), _place(content, at + len(was)), text, was)


def _place(content: str, at: int) -> tuple[int, int]:
    before = content[:at]
    return before.count("\n") + 1, len(before.rpartition("\n")[2].encode())
