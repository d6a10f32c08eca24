"""Plant small mistakes in the package, one at a time, and see whether a test notices: `make mutants`.

    python tools/mutants record                        which lines every test runs; once, and after many changes
    python tools/mutants record tests/new_test.py      the same for some tests, added to what is known
    python tools/mutants random --count 300 --seed 1   mistakes drawn from all of src/onnxgrad
    python tools/mutants planted                       the mistakes of planted.py, each of which must be noticed
    python tools/mutants report --count 300 --seed 1   the results so far

A mutant gets the tests that run its line, some seconds of them: first those that run little else, then the quickest of
every file; the first that fails ends it. Survivors get a second, longer round with the other tests of those files, too.
Results are kept in build/mutants: a run that was stopped continues, and one that is called again tries its survivors
once more, with the tests that were recorded since. Survivors for a reason stand in survivors.txt; any other makes the
exit code 1.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import sys
import time
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "hook"))

import changes  # noqa: E402
import planted  # noqa: E402
import server  # noqa: E402
import tests_of  # noqa: E402
from changes import Mutant  # noqa: E402
from tests_of import Tests  # noqa: E402

ROOT = HERE.parents[1]
SOURCE = ROOT / "src"
FOLDER = Path(os.environ.get("ONNXGRAD_MUTANTS", ROOT / "build" / "mutants"))
RECORDINGS = FOLDER / "recording"
ACCEPTED = HERE / "survivors.txt"
SECONDS = {False: 10.0, True: 60.0}  # of tests, in the first round and in the second
# It looks at every default of what users call, and runs no line of what it looks at.
DEFAULTS = "tests/cli/test_parsed.py::test_everything_takes_what_it_took"


def record(tests: list[str]) -> int:
    if not tests:
        shutil.rmtree(RECORDINGS, ignore_errors=True)
    everything = ["-n", "2", *tests_of_the_package()]
    return tests_of.record(ROOT, RECORDINGS / str(time.time_ns()), tests or everything)


def tests_of_the_package() -> list[str]:
    """Return the folders of tests named like those of the package, and the files beside them.

    Left out are those of native code, tutorials and stories, which are long and would be chosen last.
    """
    names = sorted(p.name for p in (SOURCE / "onnxgrad").iterdir() if p.is_dir())
    folders = [f"tests/{name}" for name in (*names, "hosts") if (ROOT / "tests" / name).is_dir()]
    files = [f"tests/{p.name}" for p in sorted((ROOT / "tests").glob("test_*.py"))]
    alone = ["tests/docs/test_docs.py", "tests/stories/test_scikit_learn.py"]
    return [*folders, *files, *alone]


# ---- which mistakes


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants: packages by their lines, then any change of it; at most one in a line."""
    by_package = defaultdict(list)
    weights: Counter[str] = Counter()
    for path in sorted(SOURCE.glob(f"onnxgrad/{only}")):
        below = path.relative_to(SOURCE).as_posix()
        package = below.split("/")[1]
        source = path.read_text(encoding="utf-8")
        weights[package] += source.count("\n")
        by_package[package] += changes.mutants(below, source)
    rng = random.Random(seed)
    chosen: dict[tuple[str, int], Mutant] = {}
    names = [name for name in by_package if by_package[name]]
    while len(chosen) < count:
        package = rng.choices(names, [weights[name] for name in names])[0]
        mutant = rng.choice(by_package[package])
        if (mutant.path, mutant.line) in chosen:
            continue
        if changes.is_another_program(mutant, (SOURCE / mutant.path).read_text(encoding="utf-8")):
            chosen[mutant.path, mutant.line] = mutant
    return list(chosen.values())


# ---- one mutant


def lines_of(mutant: Mutant) -> list[int]:
    """Return the lines that a test must run to meet the change: its own; those of the body for a default."""
    tree = ast.parse((SOURCE / mutant.path).read_text(encoding="utf-8"))
    own = list(range(mutant.start[0], mutant.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            head = range(node.lineno, node.body[0].lineno)
            if mutant.line in head:
                return list(range(node.body[0].lineno, node.end_lineno + 1))
        elif isinstance(node, ast.stmt) and not isinstance(node, (ast.ClassDef, ast.Module)):
            simple = not hasattr(node, "body")
            if simple and node.lineno <= mutant.line <= node.end_lineno:
                own += range(node.lineno, node.end_lineno + 1)
    return sorted(set(own))


def function_of(mutant: Mutant) -> list[int]:
    """Return the lines of the innermost function around a change: a test that runs many of them sees more of it."""
    tree = ast.parse((SOURCE / mutant.path).read_text(encoding="utf-8"))
    found = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.lineno <= mutant.line <= n.end_lineno
    ]
    inner = max(found, key=lambda n: n.lineno, default=None)
    return [] if inner is None else list(range(inner.lineno, inner.end_lineno + 1))


def chosen_tests(tests: Tests, mutant: Mutant, thorough: bool) -> set[str]:
    covering = tests.covering(mutant.path, lines_of(mutant))
    if not function_of(mutant) or not covering:
        # It runs when the module is imported, in whatever test does so first, or once for many tests.
        covering = covering | tests.of_file(mutant.path)
    return covering | tests.siblings(covering) if thorough else covering


def is_a_default(mutant: Mutant) -> bool:
    """Say whether a change is outside of the bodies of functions: a default, a table, a number under a name."""
    return not set(lines_of(mutant)) & set(function_of(mutant)) or mutant.line not in lines_of(
        mutant
    )


def judge(
    tests: Tests, mutant: Mutant, number: int, thorough: bool, seconds: float | None = None
) -> str | None:
    """Return what noticed the mutant; None for a survivor."""
    chosen = chosen_tests(tests, mutant, thorough)
    budget = seconds or SECONDS[thorough]
    queue = tests.queue(chosen, mutant.path, function_of(mutant), budget, number)
    if is_a_default(mutant) and DEFAULTS in tests.seconds:
        queue = [DEFAULTS, *(t for t in queue if t != DEFAULTS)]
    if not queue:
        return None
    source = FOLDER / f"mutant-{os.getpid()}.py"
    output = source.with_suffix(".txt")
    source.write_text(mutant.applied((SOURCE / mutant.path).read_text("utf-8")), encoding="utf-8")
    needed = sum(tests.seconds[t] for t in queue) + sum(tests.files.values()) / len(tests.files)
    noticed = server.fails(mutant.module, source, queue, 4 * needed + 60, output)
    if (
        noticed == server.TOO_LONG
    ):  # a busy machine, or a loop that does not end: once more, with patience
        noticed = server.fails(mutant.module, source, queue, 3 * (4 * needed + 60), output)
    return noticed


# ---- a run


def run(
    mutants: list[Mutant],
    title: str,
    part: tuple[int, int],
    thorough: bool,
    pattern: str,
    seconds: float | None = None,
) -> None:
    """Judge the mutants of a part that have no result yet; in the second round, the survivors of the first."""
    file = FOLDER / f"{title}-{part[0]}of{part[1]}.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    known = all_results(title)
    tests = Tests(RECORDINGS, SOURCE)
    reasons = survivors_with_a_reason()
    server.load(ROOT)
    for number, mutant in enumerate(mutants):
        waits = known.get(str(mutant), "new") == (None if thorough else "new")
        mine = number % part[1] == part[0] and fnmatch(mutant.path, pattern)
        if mine and waits and not (thorough and (mutant.change, line_of(mutant)) in reasons):
            noticed = judge(tests, mutant, number, thorough, seconds)
            results[str(mutant)] = noticed
            file.write_text(json.dumps(results, indent=1, ensure_ascii=False))
            print(f"{'✓' if noticed else '✗'} {mutant}   {noticed or ''}", flush=True)


def all_results(title: str) -> dict[str, str | None]:
    """Return what noticed each mutant so far; None where nothing did."""
    found: dict[str, str | None] = {}
    for file in sorted(FOLDER.glob(f"{title}-*of*.json")):
        for mutant, noticed in json.loads(file.read_text()).items():
            found[mutant] = found.get(mutant) or noticed
    return found


def survivors_with_a_reason() -> set[tuple[str, str]]:
    """Return the change and the line of every entry of survivors.txt: the same change elsewhere is another one."""
    blocks = [b.splitlines() for b in ACCEPTED.read_text(encoding="utf-8").strip().split("\n\n")]
    return {(b[0], b[1].strip().strip("`")) for b in blocks if len(b) > 2}


def line_of(mutant: Mutant) -> str:
    lines = (SOURCE / mutant.path).read_text(encoding="utf-8").splitlines()
    return lines[mutant.line - 1].strip()


def report(mutants: list[Mutant], title: str) -> int:
    known = all_results(title)
    results = {m: known[str(m)] for m in mutants if str(m) in known}
    survivors = [m for m, noticed in results.items() if not noticed]
    share = 100 * (1 - len(survivors) / max(1, len(results)))
    print(f"{len(results) - len(survivors)} of {len(results)} mutants were noticed ({share:.1f} %)")
    slow = sum(
        "too long" in noticed or "Timeout" in noticed for noticed in results.values() if noticed
    )
    print(f"{slow} of them because a test took too long")
    reasons = survivors_with_a_reason()
    accepted = {m for m in survivors if (m.change, line_of(m)) in reasons}
    for mutant in survivors:
        print(f"{'·' if mutant in accepted else '✗'} {mutant}")
    return 1 if set(survivors) - accepted else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["record", "random", "planted", "report"])
    parser.add_argument("tests", nargs="*", help="for record: these tests only")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="**/*.py", help="a pattern of files below src/onnxgrad")
    parser.add_argument("--judge", default="*", help="a pattern: of those drawn, only these files")
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2: two halves, for two processes")
    parser.add_argument("--seconds", type=float, help="of tests for each mutant (default: 10, 60)")
    parser.add_argument("--rounds", default="both", choices=["1", "2", "both"])
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.what == "record":
        return record(options.tests)
    if options.what == "planted":
        title, mutants = "planted", planted.mutants(SOURCE)
    else:
        title = f"random-{options.seed}-{options.count}"
        mutants = drawn(options.count, options.seed, options.only)
    if options.what != "report":
        part = tuple(int(n) for n in options.part.split("/"))
        for thorough in {"1": [False], "2": [True], "both": [False, True]}[options.rounds]:
            run(mutants, title, part, thorough, options.judge, options.seconds)
    return report(mutants, title)


if __name__ == "__main__":
    sys.exit(main())
