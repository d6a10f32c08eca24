"""Run the attacks: `python attacks/run.py [NAME ...]`. Prints a line each; the exit code is 1 when one gets through.

Each runs in a process of its own, in a new folder: the exit code, the sentence, the seconds, the memory, and every file
in and around the folder are compared with what must be. By default the process is a fork of this one, which has loaded
the libraries already; --fresh starts Python anew each time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from attack_cases import Case, every_case, readme

SECONDS = 5.0
MEMORY = 1 << 30
PATIENCE = 60  # seconds after which a hanging one is ended
SECRET = b"0123456789" * 3


@dataclass
class Outcome:
    code: int
    text: str
    seconds: float
    memory: int
    changed: list[str]

    def faults(self, case: Case, slack: float = 1.0) -> list[str]:
        """What is wrong with it; empty when the attack was answered as it must be."""
        found = []
        if self.code not in case.codes:
            found.append(f"exit code {self.code}, expected {case.codes}")
        lines = self.text.strip().splitlines()
        if not any(case.says in line for line in lines) or "Traceback" in self.text:
            found.append(f"expected a sentence with {case.says!r}")
        if "\x1b" in self.text:
            found.append("an escape of the terminal was printed")
        if self.seconds > SECONDS * slack:
            found.append(f"{self.seconds:.1f} s of the processor, at most {SECONDS:g}")
        if self.memory > MEMORY:
            found.append(f"{self.memory >> 20} MiB, at most {MEMORY >> 20}")
        if self.changed:
            found.append(f"changed: {', '.join(self.changed)}")
        return found


def attack(case: Case, root: Path, fresh: bool = False) -> Outcome:
    """Make the files of a case under `root` and run its command there."""
    box, outside = root / "box", root / "outside"
    box.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (outside / ".bashrc").write_text("alias ls=ls\n")
    command = case.make(box)
    before = tree(root)
    with tempfile.TemporaryFile() as output:
        process = _start(command, box, output.fileno(), fresh)
        code, usage, hung = _wait(process)
        output.seek(0)
        text = output.read().decode(errors="replace")
    after = tree(root)
    changed = [n for n in {*before, *after} if before.get(n) != after.get(n)]
    changed = [
        n for n in changed if not n.startswith("box/runs")
    ]  # a run may have begun its folder
    return Outcome(
        code, text + (" (it hung)" if hung else ""), usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024, changed,
    )  # fmt: skip


def _start(command: list[str], box: Path, output: int, fresh: bool) -> int:
    process = os.fork()
    if process:
        return process
    try:
        os.chdir(box)
        for number in (1, 2):
            os.dup2(output, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if fresh:
            os.execv(sys.executable, [sys.executable, "-m", "onnxgrad", *command])
        from onnxgrad.cli import main

        code = main(command)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    os._exit(code)


def _wait(process: int):
    """The exit code (negative: a signal), what was used, and whether it had to be ended."""
    end = time.monotonic() + PATIENCE
    hung = False
    while True:
        done, status, usage = os.wait4(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage, hung
        if time.monotonic() > end and not hung:
            hung = True
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def tree(root: Path) -> dict[str, object]:
    """Every name under a folder with what is in it."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.lstat()
        regular = path.is_file() and not path.is_symlink()
        found[name] = (status.st_mode, path.read_bytes() if regular else None)
    return found


def preload() -> None:
    """What every command needs, so that a fork has it."""
    import onnxruntime  # noqa: F401

    import onnxgrad.cli
    import onnxgrad.data.read
    import onnxgrad.inspection.report
    import onnxgrad.job.run
    import onnxgrad.train.trainer  # noqa: F401


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="of attacks (default: all)")
    parser.add_argument("--fresh", action="store_true", help="start Python anew for each")
    parser.add_argument("--verbose", action="store_true", help="print what each one said")
    parser.add_argument("--readme", action="store_true", help="write README.md and do nothing else")
    options = parser.parse_args()
    if options.readme:
        (Path(__file__).parent / "README.md").write_text(readme())
        return 0
    if not options.fresh:
        preload()
    failed = 0
    for case in every_case():
        if options.names and case.name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = attack(case, Path(folder), options.fresh)
        faults = outcome.faults(case)
        failed += bool(faults)
        numbers = f"{outcome.seconds:4.1f} s {outcome.memory >> 20:5d} MiB"
        print(f"{'✗' if faults else '✓'} {case.name:32} {numbers}  {'; '.join(faults)}", flush=True)
        if options.verbose or faults:
            print("    " + outcome.text.strip()[-1500:].replace("\n", "\n    "))
    print(f"{failed} got through" if failed else "all were answered")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
