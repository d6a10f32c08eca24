"""Line charts as SVG: one picture for reports, notebooks and files, without a script, a font or a package."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from onnxgrad.files.write import write_bytes
from onnxgrad.texts import grouped

WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 26
COLOURS = ("#2a78d6", "#d1495b", "#2a9d5c", "#b8860b", "#8250df", "#0a7e8c", "#bf5700", "#6e7781")

# Also for a picture that stands alone: the reader's own light or dark.
STYLE = """
.chart text{font:11px system-ui,sans-serif;fill:#59636e}.chart .title{font-size:12px;font-weight:600;fill:#1f2328}
.chart .grid{stroke:#d1d9e0;stroke-width:1}.chart .mark{stroke:#59636e;stroke-dasharray:4 3}
.chart .spot{opacity:.5}.chart .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
@media (prefers-color-scheme:dark){.chart text{fill:#9198a1}.chart .title{fill:#e6edf3}.chart .grid{stroke:#30363d}
.chart .mark{stroke:#9198a1}}
"""

Point = tuple[float, float]


@dataclass
class Axis:
    """From numbers to pixels; `ticks` are the numbers that are written beside it."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    ticks: list[float] = field(default_factory=list)

    def __post_init__(self):
        if self.high == self.low:
            margin = abs(self.low) * 0.1 or 1.0
            self.low, self.high = (
                self.low / 2 if self.log else self.low - margin,
                self.high + margin,
            )
        self.ticks = _decades(self.low, self.high) if self.log else _steps(self.low, self.high)

    def at(self, value: float) -> float:
        """The pixel of a number."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def _steps(low: float, high: float) -> list[float]:
    """Three to six round numbers between low and high: steps of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * s for s in (1, 2, 2.5, 5, 10) if power * s >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten between low and high, at most seven; the ends where there are fewer than two."""
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    if len(powers) < 2:
        return [low, high]
    return [10.0**p for p in powers[:: -(-len(powers) // 7)]]


@dataclass
class Chart:
    """Lines over one axis. Points that are not finite are left out, as are those that a logarithm has no place for."""

    title: str
    lines: dict[str, Sequence[Point]]
    log_x: bool = False
    log_y: bool = False
    mark: tuple[float, str] | None = None  # an upright line at x, with its name
    diagonal: bool = False  # y = x, for comparison
    limits: tuple[float, float] | None = None  # of both axes
    scatter: bool = False  # points without lines between them

    def __post_init__(self):
        self.lines = {name: self._drawn(line) for name, line in self.lines.items()}
        self.lines = {name: line for name, line in self.lines.items() if line}

    def _drawn(self, line: Iterable[Point]) -> list[Point]:
        return [
            (x, y)
            for x, y in line
            if math.isfinite(x) and math.isfinite(y)
            and not (self.log_x and x <= 0) and not (self.log_y and y <= 0)
        ]  # fmt: skip

    def svg(self, x: float = 0, y: float = 0) -> str:
        """The chart as an element; "" where there is nothing to draw."""
        points = [p for line in self.lines.values() for p in line]
        if not points:
            return ""
        across = self._axis([p[0] for p in points], LEFT, WIDTH - RIGHT, self.log_x)
        up = self._axis([p[1] for p in points], HEIGHT - BOTTOM, TOP, self.log_y)
        place = f"x='{x:g}' y='{y:g}' " if x or y else ""
        names = ", ".join(self.lines)
        head = (
            f"<svg {place}class='chart' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' role='img' "
            f"aria-label='{escape(f'{self.title}: {names}', quote=True)}'>"
            f"<text class='title' x='4' y='14'>{escape(self.title)}</text>"
        )
        parts = [*self._grid(across, up), *self._lines(across, up), *self._legend()]
        return head + "".join(parts) + "</svg>"

    def _axis(self, values: list[float], start: float, end: float, log: bool) -> Axis:
        low, high = self.limits or (min(values), max(values))
        return Axis(low, high, start, end, log)

    def _grid(self, across: Axis, up: Axis) -> Iterable[str]:
        for value in up.ticks:
            y = up.at(value)
            yield f"<line class='grid' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y:.1f}' y2='{y:.1f}'/>"
            yield f"<text x='{LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{_label(value)}</text>"
        for value in across.ticks:
            x = across.at(value)
            anchor = "end" if x > WIDTH - RIGHT - 12 else "middle"
            yield f"<text x='{x:.1f}' y='{HEIGHT - 8}' text-anchor='{anchor}'>{_label(value)}</text>"
        if self.mark is not None:
            value, name = self.mark
            x = across.at(value)
            side, anchor = (-4, "end") if x > WIDTH / 2 else (4, "start")
            yield f"<line class='mark' x1='{x:.1f}' x2='{x:.1f}' y1='{TOP}' y2='{HEIGHT - BOTTOM}'/>"
            yield f"<text x='{x + side:.1f}' y='{TOP + 10}' text-anchor='{anchor}'>{escape(name)}</text>"
        if self.diagonal:
            yield (
                f"<line class='mark' x1='{across.start}' y1='{up.start}' x2='{across.end}' y2='{up.end}'/>"
            )

    def _lines(self, across: Axis, up: Axis) -> Iterable[str]:
        for number, line in enumerate(self.lines.values()):
            colour = COLOURS[number % len(COLOURS)]
            spots = [(across.at(x), up.at(y)) for x, y in line]
            if self.scatter:
                yield from (
                    f"<circle class='spot' cx='{x:.1f}' cy='{y:.1f}' r='2.5' fill='{colour}'/>"
                    for x, y in spots
                )
                continue
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            yield f"<polyline class='line' stroke='{colour}' points='{path}'/>"
            for x, y in spots if len(spots) <= 12 else spots[-1:]:
                yield f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2.5' fill='{colour}'/>"

    def _legend(self) -> Iterable[str]:
        """Names with their colours, under the title; those that have no room are counted."""
        if len(self.lines) < 2:
            return
        x, names = 4.0, list(self.lines)
        for number, name in enumerate(names):
            text = name if len(name) <= 28 else f"{name[:27]}…"
            width = 24 + 6.2 * len(text)
            if x + width > WIDTH - 60 and number < len(names) - 1:
                yield f"<text x='{x:.0f}' y='30'>+ {len(names) - number} more</text>"
                return
            colour = COLOURS[number % len(COLOURS)]
            yield f"<circle cx='{x + 4:.0f}' cy='26' r='3.5' fill='{colour}'/>"
            yield f"<text x='{x + 12:.0f}' y='30'>{escape(text)}</text>"
            x += width


def _label(value: float) -> str:
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return grouped(value)
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-").replace("e+0", "e")


class Picture:
    """Charts side by side; a notebook shows it, `save` writes it, `str` is the SVG."""

    def __init__(self, charts: Iterable[Chart]):
        self.charts = [chart for chart in charts if any(chart.lines.values())]

    def __str__(self) -> str:
        columns = min(2, max(len(self.charts), 1))
        rows = -(-len(self.charts) // columns)
        width, height = columns * (WIDTH + 16), rows * (HEIGHT + 16)
        inside = "".join(
            chart.svg((i % columns) * (WIDTH + 16) + 8, (i // columns) * (HEIGHT + 16) + 8)
            for i, chart in enumerate(self.charts)
        )
        size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' {size}><style>{STYLE}</style>{inside}</svg>"
        )

    def __repr__(self) -> str:
        titles = ", ".join(chart.title for chart in self.charts) or "nothing"
        return f"<Picture of {titles}; .save('curves.svg') writes it, and a notebook shows it>"

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as an SVG file, which every browser shows."""
        write_bytes(path, str(self).encode())


def curves(epochs: Sequence[dict[str, float]]) -> list[Chart]:
    """The charts of a training: losses together, every metric beside its namesakes, the learning rate."""
    keys = dict.fromkeys(k for logs in epochs for k in logs if k not in ("epoch", "step"))
    groups: dict[str, list[str]] = {}
    for key in keys:
        name = "loss" if key.endswith("loss") else key.removeprefix("val_")
        groups.setdefault(name, []).append(key)
    order = sorted(groups, key=lambda name: (name == "lr", name != "loss"))
    return [
        Chart(
            f"{'learning rate' if name == 'lr' else name} by epoch",
            {k: [(e["epoch"], e[k]) for e in epochs if k in e] for k in groups[name]},
        )
        for name in order
    ]
