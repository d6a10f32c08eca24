"""The report in a real browser: what it shows, that nothing runs, that nothing is fetched, in light and dark.

Chromium draws and prints the page; `apt install chromium`, or any browser of that family on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import run
from PIL import Image

from onnxgrad.sklearn import mlp

pytestmark = pytest.mark.live
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on the path (on Debian: apt install chromium)"
)
NASTY = [
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
]


def browse(page: Path, tmp_path: Path, *more: str) -> str:
    """What the browser made of a page: its document after all has run that would run."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,2400",
               f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000"]  # fmt: skip
    done = subprocess.run(
        [BROWSER, *options, *more, page.resolve().as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(params=[5, 50], ids=["5 classes", "50 classes"])
def report(request, tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.chdir(tmp_path)
    classes = request.param
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(classes, 8)), np.arange(classes * 20) % classes
    names = [*NASTY, *(f"a class with a rather long name {i}" for i in range(2, classes))]
    x = centres[labels] + 0.7 * rng.normal(size=(len(labels), 8))
    np.savez("d.npz", x=x.astype(np.float32), **{"<b>kind</b>": np.array(names)[labels]})
    onnx.save(mlp(8, classes), "model.onnx")
    command = "train model.onnx --data d.npz -o t.onnx --lr 0.01 --epochs 3 --quiet"
    assert run(capsys, *command.split())[0] == 0
    return tmp_path / "runs" / "model-1" / "report.html"


@needs_browser
def test_names_stay_text_and_nothing_runs(report, tmp_path):
    dom = browse(report, tmp_path, "--dump-dom")
    assert "<title>model.onnx → t.onnx</title>" in dom
    assert not re.search(r"<script|<img [^>]*onerror", dom)
    text = unescape(re.sub(r"<[^>]*>", "", dom))
    assert all(name in text for name in NASTY)
    for heading in ("Curves", "Confusion matrix", "Reliability", "Examples most wrong", "Settings"):
        assert f"<h2>{heading}</h2>" in dom
    classes = len(set(re.findall(r"<th><span title=", dom))) and dom.count("<th><span title=") // 2
    assert classes in (5, 50)


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_drawn_in_the_readers_own_light(report, tmp_path, dark):
    picture = tmp_path / "page.png"
    more = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(report, tmp_path, f"--screenshot={picture}", *more)
    pixels = np.asarray(Image.open(picture).convert("L")).astype(float)
    assert (np.median(pixels) < 60) if dark else (np.median(pixels) > 200)
    assert pixels.std() > 5  # something stands on it
    assert (pixels[:, -8:].std() < 1).all()  # and nothing runs out of it on the right
