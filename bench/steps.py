"""Whole training steps, in one command: `make bench-steps`, or

    python bench/steps.py [--torch python] [--before python] [--busy] [--seconds 2.5] [--no-compile] [--page]

Runs bench/exported.py (1 and 2 threads, torch.compile on 1), bench/bound.py, bench/training.py, bench/products.py,
bench/work_span.py and bench/attention_memory.py one after the other, keeps what they found in bench/results, and writes
docs/speed-steps.md of it. `--before` is a Python that has another build of onnxgrad, which the networks of
bench/training.py are compared with. `--busy` takes processor time, on one thread only, for a machine that does other
work; `--no-compile` leaves torch.compile out; `--page` only writes the page. Some 16 minutes on two cores that do
nothing else, 11 without torch.compile.
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
from training import PEERS
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


def measure(arguments, torch: str) -> None:
    busy, seconds = arguments.busy, ["--seconds", str(arguments.seconds)]
    clock = ["--clock", "cpu"] if busy else []
    jobs = {
        "exported": [
            *("--torch", torch, "--threads", *(["1"] if busy else ["1", "2"])),
            *([] if arguments.no_compile else ["--compile"]),
            *(seconds + clock),
        ],
        "bound": [],
        "old_networks": [
            *("--torch", torch, "--threads", "1" if busy else "2"),
            *(["--before", arguments.before] if arguments.before else []),
            *(seconds + clock),
        ],
        "products": ["--torch", torch],
        "work_span": ["--torch", torch],
        "attention_memory": [],
    }
    for name, options in jobs.items():
        script = "training" if name == "old_networks" else name
        command = [sys.executable, ROOT / "bench" / f"{script}.py", *options]
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
    shown = "" if who == EAGER else f" {_ratio(ratio)}"
    return f"{found['ms']:.1f} ms{shown}, {found['peak_mb']:.0f} MB"


# Folders of results from other processors, which `make bench-steps` does not touch.
OTHERS = {
    "halves": "A processor with AVX-512 and a peak of 118 GFLOP/s, less than half of that of this page. Measured "
    "earlier on the same day, before sums were joined to products",
    "avx2": "The processor of this page held to AVX2, with a build of every instruction set: `ONNXGRAD_ISA=avx2`, and "
    "for PyTorch `ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2`. onnxruntime's own "
    "nodes are not held",
}


def others_section(_: dict) -> str:
    """The ratios of other processors, a line for each number of threads."""
    text = "\n## Other processors\n\nThe slower file of each network, as above. PyTorch's products do not use the "
    text += "whole width of AVX-512 on the processor of this page, ours do: that is the difference between these lines "
    text += "and the tables above.\n"
    for folder, about in OTHERS.items():
        found = of(f"{folder}/exported")
        if not found:
            continue
        text += f"\n{about}:\n\n"
        for threads in sorted({r["threads"] for r in found["rows"]}):
            rows = [r for r in found["rows"] if r["threads"] == threads]
            numbers = ratios(rows)
            each = ", ".join(f"{r['name']} {n:.2f}" for r, n in zip(rows, numbers, strict=True))
            text += f"- {threads} thread{'s' if threads > 1 else ''}: {each}; geometric mean "
            text += f"{geometric_mean(numbers):.2f}, least {min(numbers):.2f}\n"
        spans = of(f"{folder}/work_span")
        if spans:
            each = ", ".join(f"{r['name']} {r['speed_up']['16']:.1f}" for r in spans)
            text += f"- predicted for 16 cores: {each}\n"
    return text


def bound_section(found: dict) -> str:
    rows = found["rows"]
    mean = geometric_mean([row["most"] for row in rows])
    text = (
        "\n## What can be reached\n\nThe linear layers of a step alone, at the processor's peak of "
    )
    text += f"{found['peak']:.0f} GFLOP/s on one thread and with all else for free, and PyTorch's step over that: "
    text += (
        f"no program that multiplies in float32 has a higher ratio. Geometric mean {mean:.2f}.\n\n"
    )
    text += "| network | GFLOP | at the peak | PyTorch over that |\n|---|--:|--:|--:|\n"
    for row in rows:
        text += (
            f"| {row['name']} | {row['gflop']:.1f} | {row['ms']:.1f} ms | {row['most']:.2f}× |\n"
        )
    return text


def old_networks_section(found: dict) -> str:
    rows = found["results"]
    peers = [w for w in PEERS if any(w in r["ms"] for r in rows)]
    threads = rows[0]["threads"]
    text = f"\n## The networks of bench/training.py\n\nOn {threads} thread{'s' if threads > 1 else ''}.\n\n"
    text += f"| network | onnxgrad | {' | '.join(peers)} | peak MB |\n|---|--:|{'--:|' * len(peers)}--:|\n"
    for row in rows:
        ours = row["ms"]["onnxgrad"]
        cells = []
        for who in peers:
            ms = row["ms"].get(who)
            cells.append("–" if ms is None else f"{ms:.2f} ms {_ratio(ms / ours)}")
        memory = " / ".join(f"{mb:.0f}" for mb in row["peak_mb"].values())
        text += f"| {row['title']} | {ours:.2f} ms | {' | '.join(cells)} | {memory} |\n"
    return text


def _ratio(ratio: float) -> str:
    return f"({ratio:.2f}×)" if ratio >= 1 else f"(**{ratio:.2f}×**)"


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
        f"(bench/work_span.py says how; wanted {TARGET:.0f} on 16), and what 16 cores wait for. "
        "At most: the same nodes with their work divided without a rest; every part still wakes its cores, and what "
        "lies between nodes stays.\n\n"
    )
    cores = list(found[0]["speed_up"])
    text += f"| network | one core | {' | '.join(cores)} | at most on 16 | waits for |\n"
    text += f"|---|--:|{'--:|' * len(cores)}--:|---|\n"
    for row in found:
        speeds = " | ".join(f"{row['speed_up'][c]:.1f}×" for c in cores)
        most = f"{row['most']['16']:.1f}×" if "most" in row else "–"
        text += f"| {row['name']} | {row['ms']:.1f} ms | {speeds} | {most} | {_worst(row)} |\n"
    before = {row["name"]: row for row in of("work_span_before") or ()}
    if not before:
        return text
    text += "\nThe same before normalisations, padding and slices were seen as one operator each, and before pieces "
    text += "were cut finer (on a processor of half the width, where more cores look better):\n\n"
    text += "| network | one core | on 16 | waits for |\n|---|--:|--:|---|\n"
    for row in (before[r["name"]] for r in found if r["name"] in before):
        text += f"| {row['name']} | {row['ms']:.1f} ms | {row['speed_up']['16']:.1f}× | {_worst(row)} |\n"
    return text


def _worst(row: dict) -> str:
    return ", ".join(f"{op} {ms:.2f} ms" for op, ms in row["worst"])


def memory_section(found: list[dict]) -> str:
    text = "\n## Memory of attention\n\nOne head of 64, forward and backward: what it takes beyond its tensors.\n\n"
    text += "| tokens | tensors | beyond them | a matrix of scores |\n|--:|--:|--:|--:|\n"
    for row in found:
        matrix = row["tokens"] ** 2 * 4 / 2**20
        text += f"| {row['tokens']} | {row['tensors_mb']:.1f} MB | {row['beyond_mb']:.1f} MB | {matrix:.0f} MB |\n"
    return text


def page() -> str:
    exported = of("exported")
    how = "wall time" if exported and exported["clock"] == "wall" else "processor time"
    text = HEAD.format(date=date.today().isoformat(), how=f"best of turns, {how}")
    sections = {
        "exported": steps_section,
        "halves/exported": others_section,
        "bound": bound_section,
        "old_networks": old_networks_section,
        "products": products_section,
        "work_span": span_section,
        "attention_memory": memory_section,
    }
    for name, section in sections.items():
        found = of(name)
        text += section(found) if found else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python that has PyTorch 2.13, onnx and onnxscript")
    parser.add_argument("--before", help="a Python that has another build of onnxgrad")
    parser.add_argument("--seconds", type=float, default=2.5, help="per contender and network")
    parser.add_argument("--busy", action="store_true", help="processor time, one thread")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--page", action="store_true", help="only write the page")
    arguments = parser.parse_args()
    if not arguments.page:
        measure(arguments, arguments.torch or environment())
    PAGE.write_text(page())
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
