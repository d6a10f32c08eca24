"""Whole training steps, in one command: `make bench-steps`, or

    python bench/steps.py [--torch python] [--busy] [--no-compile] [--page]

Runs bench/exported.py (1 and 2 threads, torch.compile on 1), bench/products.py, bench/work_span.py and
bench/attention_memory.py one after the other, keeps what they found in bench/results, and writes docs/speed-steps.md
of it. `--busy` takes processor time, on one thread only, for a machine that does other work; `--no-compile` leaves
torch.compile out; `--page` only writes the page. Some 14 minutes on two cores that do nothing else, 9 without
torch.compile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import date
from pathlib import Path

from exported import COMPILED, EAGER, EXPORTERS, TARGETS, geometric_mean, ratios
from products import KINDS, WHO
from run import torch_python
from work_span import TARGET

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results", ROOT / "docs" / "speed-steps.md"

HEAD = """# Speed of whole training steps

Written by `make bench-steps` on {date}: {how}. The networks are in `bench/workers`, written in PyTorch and exported by
its two exporters as they come. A step is forward, backward and AdamW. Ratios are PyTorch's time over ours: above 1 we
are faster. Losses stand next to wins.
"""


def environment() -> str:
    """PyTorch's environment, with what its exporters need."""
    python = torch_python()
    needed = [python, "-m", "pip", "install", "-qq", "onnx", "onnxscript"]
    subprocess.run(needed, check=True)
    return str(python)


def measure(torch: str, busy: bool, compiled: bool) -> None:
    clock = ["--threads", "1", "--clock", "cpu"] if busy else ["--threads", "1", "2"]
    jobs = {
        "exported": [
            "--torch",
            torch,
            "--seconds",
            "2.5",
            *(["--compile"] if compiled else []),
            *clock,
        ],
        "products": ["--torch", torch],
        "work_span": ["--torch", torch],
        "attention_memory": [],
    }
    for name, options in jobs.items():
        command = [sys.executable, ROOT / "bench" / f"{name}.py", *options]
        subprocess.run([*command, "--output", RESULTS / f"{name}.json"], check=True)


def of(name: str):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def steps_section(found: dict) -> str:
    text = ""
    for threads in sorted({r["threads"] for r in found["rows"]}):
        rows = [r for r in found["rows"] if r["threads"] == threads]
        numbers = ratios(rows)
        who = [*EXPORTERS, EAGER, COMPILED]
        text += f"\n## Steps, {threads} thread{'s' if threads > 1 else ''}\n\n"
        text += f"Geometric mean {geometric_mean(numbers):.2f} (wanted {TARGETS['mean']}), least {min(numbers):.2f} "
        text += f"(wanted {TARGETS['least']}). Memory is the most that the process held.\n\n"
        text += f"| network | {' | '.join(who)} |\n|---|{'--:|' * len(who)}\n"
        for row in rows:
            text += f"| {row['name']} | {' | '.join(_step(row, w) for w in who)} |\n"
    return text


def _step(row: dict, who: str) -> str:
    found = row["contenders"].get(who)
    if found is None:
        return "failed" if who in row["failed"] else "–"
    ratio = row["contenders"][EAGER]["ms"] / found["ms"]
    shown = "" if who == EAGER else f" ({ratio:.2f}×)" if ratio >= 1 else f" (**{ratio:.2f}×**)"
    return f"{found['ms']:.1f} ms{shown}, {found['peak_mb']:.0f} MB"


def products_section(found: dict) -> str:
    text = f"\n## Products\n\nGFLOP/s on one thread, {' / '.join(WHO)}; the peak of fused multiply-adds is "
    text += f"{found['peak']:.0f}. *Chosen*: what training takes, and its speed over that of the quickest.\n\n"
    text += f"| rows, K, N | {' | '.join(KINDS)} | chosen |\n|---|{'--:|' * (len(KINDS) + 1)}\n"
    for row in found["rows"]:
        cells = [" / ".join(f"{s[w]:.0f}" for w in WHO) for s in row["gflops"]]
        shape = ", ".join(map(str, row["shape"]))
        text += f"| {shape} | {' | '.join(cells)} | {row['chosen']} {row['share']:.2f} |\n"
    return text


def span_section(found: list[dict]) -> str:
    text = "\n## More cores\n\nWhat a step would gain on more cores, computed from the time of every piece on one "
    text += (
        f"(bench/work_span.py says how; wanted {TARGET:.0f} on 16), and what 16 cores wait for.\n\n"
    )
    cores = list(found[0]["speed_up"])
    text += f"| network | one core | {' | '.join(cores)} | waits for |\n|---|--:|{'--:|' * len(cores)}---|\n"
    for row in found:
        speeds = " | ".join(f"{row['speed_up'][c]:.1f}×" for c in cores)
        worst = ", ".join(f"{op} {ms:.2f} ms" for op, ms in row["worst"])
        text += f"| {row['name']} | {row['ms']:.1f} ms | {speeds} | {worst} |\n"
    return text


def memory_section(found: list[dict]) -> str:
    text = "\n## Memory of attention\n\nOne head of 64, forward and backward: what it takes beyond its tensors.\n\n"
    text += "| tokens | tensors | beyond them | a matrix of scores |\n|--:|--:|--:|--:|\n"
    for row in found:
        matrix = row["tokens"] ** 2 * 4 / 2**20
        text += f"| {row['tokens']} | {row['tensors_mb']:.1f} MB | {row['beyond_mb']:.1f} MB | {matrix:.0f} MB |\n"
    return text


def page() -> str:
    exported = of("exported")
    how = "processor time" if exported and exported["clock"] == "cpu" else "wall time"
    text = HEAD.format(date=date.today().isoformat(), how=f"best of turns, {how}")
    sections = {"exported": steps_section, "products": products_section, "work_span": span_section,
                "attention_memory": memory_section}  # fmt: skip
    for name, section in sections.items():
        found = of(name)
        text += section(found) if found else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python that has PyTorch 2.13, onnx and onnxscript")
    parser.add_argument("--busy", action="store_true", help="processor time, one thread")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--page", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    if not arguments.page:
        measure(arguments.torch or environment(), arguments.busy, not arguments.no_compile)
    PAGE.write_text(page())
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
