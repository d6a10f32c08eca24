"""Which tests run a line, and how long they take.

A recording is a folder: what `recorder.py` wrote, and `src` as it was then. Lines are found again by their
neighbours after a change of the source, so that one recording serves for many days; another of a few files adds to it.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

LINES = "lines.json"
MOST_TO_COLLECT = 1.0  # seconds
Lines = dict[str, dict[int, set[str]]]  # path below src/ → line → tests


def record(root: Path, folder: Path, tests: list[str]) -> int:
    """Run tests, noting the lines that each of them runs; return pytest's exit code."""
    folder.mkdir(parents=True)
    shutil.copytree(root / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc", "*.so"))
    here = Path(__file__).parent
    path = os.pathsep.join(str(p) for p in (here, here / "hook"))
    command = [sys.executable, "-m", "pytest", "-p", "recorder", "-p", "no:cacheprovider", *tests]
    variables = {**os.environ, "ONNXGRAD_RECORD": str(folder), "PYTHONPATH": path}
    code = subprocess.run(command, cwd=root, env=variables).returncode
    condense(folder)
    return code


def condense(folder: Path) -> None:
    """Write what the many files of a recording say into one, which is read in a second."""
    lines, number = _recorded(folder), {}
    for test in sorted(
        {t for of_file in lines.values() for tests in of_file.values() for t in tests}
    ):
        number[test] = len(number)
    short = {path: {line: sorted(number[t] for t in tests) for line, tests in of_file.items()}
             for path, of_file in lines.items()}  # fmt: skip
    (folder / LINES).write_text(json.dumps({"tests": list(number), "lines": short}))
    for file in folder.glob("lines.*"):
        if file.name != LINES:
            file.unlink()


class Tests:
    """The tests of every line of `source`, from a folder of recordings."""

    def __init__(self, recordings: Path, source: Path):
        self.seconds: dict[str, float] = {}
        self.files: dict[str, float] = {}  # to collect them
        self._lines: Lines = defaultdict(lambda: defaultdict(set))
        for folder in sorted(
            p.parent for p in recordings.glob(f"*/{LINES}")
        ):  # those that are finished
            self._add(folder, source)
        self._ran: dict[str, Counter[str]] = defaultdict(Counter)  # test → lines of every file
        self._of_file = defaultdict(list)
        for test in self.seconds:
            self._of_file[_file(test)].append(test)

    def _add(self, folder: Path, source: Path) -> None:
        for path in folder.glob("seconds-*.json"):
            read = json.loads(path.read_text())
            self.seconds.update(read["tests"])
            # The first file of a process waits for imports, which the server has made.
            self.files.update((f, min(s, MOST_TO_COLLECT)) for f, s in read["files"].items())
        read = json.loads((folder / LINES).read_text())
        names = read["tests"]
        for path, lines in read["lines"].items():
            if (folder / "src" / path).exists() and (source / path).exists():
                now = _where_lines_are((folder / "src" / path), source / path)
                for line, tests in lines.items():
                    if int(line) in now:
                        self._lines[path][now[int(line)]] |= {names[t] for t in tests}

    def covering(self, path: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that run one of the lines."""
        known = self._lines.get(path, {})
        return {test for line in lines for test in known.get(line, ()) if test in self.seconds}

    def of_file(self, path: str) -> set[str]:
        """Return the tests that run any line of a file, other than by importing it."""
        return self.covering(path, self._lines.get(path, {}))

    def siblings(self, tests: Iterable[str]) -> set[str]:
        """Return all tests of the same files: they share fixtures, and what is computed once."""
        return {t for file in {_file(t) for t in tests} for t in self._of_file[file]}

    def queue(
        self, tests: Iterable[str], path: str, around: Sequence[int], budget: float, seed: object
    ) -> list[str]:
        """Return tests that take `budget` seconds together: for half of it those that run most of the function
        `around` the change and little but this file, then files in turn, the quickest tests of each first.
        """
        rng = random.Random(str(seed))  # not always the same of many that are as good
        costs = {t: self.seconds[t] * rng.uniform(0.7, 1.4) for t in sorted(tests)}
        ran = Counter(t for line in around for t in self._lines[path].get(line, ()))
        most = max((ran[t] for t in costs), default=0) or 1
        specific = sorted(
            costs,
            key=lambda t: (0.05 + costs[t]) / self._share(t, path) / max(ran[t] / most, 0.01) ** 3,
        )
        chosen = self._within(specific, budget / 2, {})
        return list(self._within([*specific[:1], *self._in_turn(costs)], budget, chosen))

    def _in_turn(self, costs: dict[str, float]) -> Iterator[str]:
        by_file = defaultdict(list)
        for test, cost in costs.items():
            by_file[_file(test)].append((cost, test))
        queues = sorted(by_file.values(), key=lambda q: min(q)[0] + self.files[_file(q[0][1])])
        turns = itertools.zip_longest(*map(sorted, queues))
        return (entry[1] for turn in turns for entry in turn if entry)

    def _within(
        self, tests: Iterable[str], budget: float, chosen: dict[str, float]
    ) -> dict[str, float]:
        """Add tests with what each costs, as long as the budget is enough; one is always taken."""
        chosen = dict(chosen)
        seen, spent = {_file(t) for t in chosen}, sum(chosen.values())
        for test in tests:
            cost = self.seconds[test] + (0 if _file(test) in seen else self.files[_file(test)])
            if test not in chosen and (not chosen or spent + cost <= budget):
                spent += cost
                seen.add(_file(test))
                chosen[test] = cost
        return chosen

    def _share(self, test: str, path: str) -> float:
        """Return which part of the lines that a test runs are of this file."""
        if not self._ran:
            for file, lines in self._lines.items():
                for tests in lines.values():
                    for t in tests:
                        self._ran[t][file] += 1
        ran = self._ran.get(test)
        return max(ran[path], 0.1) / ran.total() if ran else 1e-6


def _file(test: str) -> str:
    return test.split("::")[0]


def _recorded(folder: Path) -> Lines:
    from coverage import CoverageData
    from coverage.exceptions import CoverageException

    found: Lines = defaultdict(lambda: defaultdict(set))
    for file in folder.glob("lines.*"):
        if file.name == LINES:
            continue
        data = CoverageData(basename=str(file))
        try:
            data.read()
        except CoverageException:  # of a process that a test killed
            continue
        for path in data.measured_files():
            below = "onnxgrad" + path.rpartition("/src/onnxgrad")[2]
            for line, contexts in data.contexts_by_lineno(path).items():
                found[below][line].update(c.strip("|") for c in contexts if c)
    return found


def _where_lines_are(old: Path, new: Path) -> dict[int, int]:
    """Return the line of the new file for each of the old that is still there."""
    before, after = (p.read_text(encoding="utf-8").splitlines() for p in (old, new))
    if before == after:
        return {n: n for n in range(1, len(before) + 1)}
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {a + i + 1: b + i + 1 for a, b, size in blocks for i in range(size)}
