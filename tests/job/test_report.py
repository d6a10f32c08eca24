"""The report: what it shows of a run, that names stay text, pictures of what went wrong, runs beside each other."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from job.problem import LABEL, X, run
from PIL import Image

from onnxgrad.job import report
from onnxgrad.job.config import Config
from onnxgrad.job.thumbnails import png, thumbnail

NASTY = ["<script>alert(1)</script>", "a'b\"c>&amp;", "x" * 80]
TRAIN = ("train", "model.onnx", "--data", "d.csv", "--target", "kind", "-o", "t.onnx", "--quiet")


class Page(HTMLParser):
    """The elements of a page and its text, as a browser would see them."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def page(path: str = "runs/model-1/report.html") -> Page:
    return Page(Path(path).read_text())


def write_nasty() -> None:
    header = "a,b,c,<img src=x onerror=alert(2)>,kind\n"
    quoted = ['"' + n.replace('"', '""') + '"' for n in NASTY]
    rows = [",".join([*(f"{v:.4f}" for v in x), quoted[y]]) for x, y in zip(X, LABEL, strict=True)]
    Path("d.csv").write_text(header + "\n".join(rows) + "\n")


def test_names_from_files_stay_text_and_nothing_is_fetched(folder, capsys):
    write_nasty()
    assert run(capsys, *TRAIN, "--epochs", 2, "--lr", 0.05)[0] == 0
    seen = page()
    assert {"script", "iframe", "link", "object"} & seen.names() == set()
    assert all(
        not a.get("src", "data:").replace("data:", "", 1).startswith("http") for _, a in seen.tags
    )
    assert not [k for _, a in seen.tags for k in a if k.startswith("on")]
    policy = next(a for t, a in seen.tags if t == "meta" and "http-equiv" in a)
    assert policy["content"].startswith("default-src 'none'")
    for name in NASTY:
        assert name in seen.text
    titles = {a["title"] for t, a in seen.tags if t == "span" and "title" in a}
    assert titles == set(NASTY)
    assert "<img src=x onerror=alert(2)>" in seen.text  # a column of the examples


def test_the_numbers_of_the_page_are_those_of_the_model(folder, capsys):
    """Rows of the confusion matrix, the reliability table and the examples, counted by hand."""
    write_nasty()
    assert run(capsys, *TRAIN, "--epochs", 1, "--val", "d.csv", "--lr", 0.01)[0] == 0
    session = __import__("onnxruntime").InferenceSession("t.onnx")
    scores = session.run(None, {"x": X.round(4)})[0].astype(np.float64)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    order = np.argsort(np.argsort(NASTY))  # classes are numbered in alphabetical order
    truth, answer, sure = order[LABEL], shares.argmax(1), shares.max(1)
    html = Path("runs/model-1/report.html").read_text()
    matrix = html[html.index("class='matrix") : html.index("<h2>Classes")]
    cells = [int(c or 0) for c in re.findall(r"<td[^>]*>(\d*)</td>", matrix)]
    counted = np.zeros((3, 3), int)
    np.add.at(counted, (truth, answer), 1)
    np.testing.assert_array_equal(np.reshape(cells, (3, 3)), counted)
    part = html[html.index("<h2>Reliability") :]
    rows = re.findall(
        r"<td class=n>([\d.]+)</td><td class=n>([\d.]+)</td><td class=n>(\d+)</td>", part
    )
    assert sum(int(n) for *_, n in rows) == len(X)
    bins = np.clip((sure * 10).astype(int), 0, 9)
    first = bins == bins.min()
    assert float(rows[0][0]) == pytest.approx(sure[first].mean(), abs=0.006)
    assert float(rows[0][1]) == pytest.approx((truth == answer)[first].mean(), abs=0.006)
    wrong = np.flatnonzero(truth != answer)
    worst = wrong[sure[wrong].argmax()]
    examples = html[html.index("<h2>Examples most wrong") :]
    assert f"<td>line {worst + 2}</td>" in examples[: examples.index("</tr></tbody>")]
    assert re.search(r"<tbody><tr><td>line (\d+)</td>", examples)[1] == str(worst + 2)


def test_regression_shows_answers_over_the_truth(folder, capsys):
    model = onnx.load("model.onnx")
    model.graph.node.append(
        onnx.helper.make_node("ReduceSum", ["logits", "last"], ["y"], keepdims=1)
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "last"))
    del model.graph.output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info("y", 1, ["N", 1]))
    onnx.save(model, "sum.onnx")
    np.savez("d.npz", x=X, y=X.sum(1))
    assert run(capsys, "train", "sum.onnx", "--data", "d.npz", "-o", "t.onnx", "--quiet")[0] == 0
    html = Path("runs/sum-1/report.html").read_text()
    assert html.count("class='spot'") == 24
    assert "<h2>Examples most wrong" in html
    assert "<h2>Confusion" not in html
    errors = [
        abs(float(v))
        for v in re.findall(
            r"<td>row \d+</td><td>[^<]*</td><td>[^<]*</td><td class=n>([^<]*)", html
        )
    ]
    assert len(errors) == 12
    assert errors == sorted(errors, reverse=True)


# ---- pictures


@pytest.mark.parametrize(
    ("shape", "mode"), [((3, 9, 12), "RGB"), ((9, 12, 3), "RGB"), ((1, 9, 12), "L"), ((9, 12), "L")]
)
def test_a_row_that_is_a_picture_becomes_one(shape, mode):
    row = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    kind, data = thumbnail(row).split(",")
    assert kind == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert (image.size, image.mode) == ((12, 9), mode)
    pixels = np.asarray(image).astype(int)
    assert (pixels.min(), pixels.max()) == (0, 255)


@pytest.mark.parametrize(
    "shape", [(), (5,), (2, 3), (7, 9, 12), (3, 1, 1), (1, 2, 3, 4), (3, 0, 4)]
)
def test_other_rows_become_none(shape):
    assert thumbnail(np.zeros(shape, np.float32)) == ""


def test_large_and_broken_pictures():
    assert thumbnail(np.full((3, 20, 20), np.nan, np.float32)) == ""
    big = thumbnail(np.random.default_rng(0).normal(size=(3, 500, 300)))
    image = Image.open(io.BytesIO(base64.b64decode(big.split(",")[1])))
    assert max(image.size) <= 96
    assert Image.open(io.BytesIO(png(np.zeros((4, 5), np.uint8)))).size == (5, 4)


# ---- runs beside each other


def test_runs_are_compared(folder, capsys):
    more = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 2, "--quiet")
    for lr in (0.05, 0.0001):
        assert run(capsys, *more, "--lr", lr)[0] == 0
    Path("runs/notes.txt").write_text("no run")
    code, out, err = run(
        capsys, "report", *sorted(map(str, Path("runs").iterdir())), "-o", "all.html"
    )
    assert (code, err) == (0, "")
    assert "left out: runs/notes.txt is not a run folder" in out
    assert "model-1" in out
    html = Path("all.html").read_text()
    scores = [json.loads(Path(f"runs/model-{i}/result.json").read_text())["after"] for i in (1, 2)]
    assert scores[0]["accuracy"] > scores[1]["accuracy"]
    assert (
        re.findall(r"<span class=best>", html).__len__() == 2
    )  # loss and accuracy, of the first run
    assert re.search(r"<thead><tr><th>run</th><th>lr</th></tr></thead>", html)
    assert "<td>0.0001</td>" in html
    links = [a["href"] for t, a in Page(html).tags if t == "a"]
    assert links == ["./runs/model-1/report.html", "./runs/model-2/report.html"]
    assert html.count("val_accuracy by epoch") == 2  # the title, and what a reader of screens says


def test_runs_of_hostile_folders_are_refused_or_stay_text(folder, capsys):
    more = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 1, "--quiet")
    assert run(capsys, *more, "--run-dir", "runs/<b>'\"")[0] == 0
    assert run(capsys, *more, "--run-dir", "runs/broken")[0] == 0
    Path("runs/broken/result.json").write_text('{"after": [1]}')
    code, out, _ = run(capsys, "report", "runs/<b>'\"", "runs/broken")
    assert code == 0
    assert "left out: runs/broken/result.json is damaged: it has no scores" in out.replace(
        "\n", " "
    )
    seen = page("comparison.html")
    assert "b" not in seen.names()
    assert "<b>'\"" in seen.text
    code, _, err = run(capsys, "report", "runs/broken")
    assert code == 2
    assert "no scores" in err


def test_every_setting_that_says_something_is_on_the_page():
    config = Config(data="d.csv", output="t.onnx", lr=0.25, target="", seed=0)
    page = report._settings(SimpleNamespace(model="m.onnx", config=config))
    assert "onnxgrad train m.onnx --data d.csv -o t.onnx --lr 0.25" in page
    for name, value in (("data", "d.csv"), ("lr", "0.25"), ("seed", "0")):
        assert f"<td>{name}</td><td>{value}</td>" in page.replace("\n", "")
    assert "<td>target</td>" not in page


def test_a_page_with_brackets_in_its_name_is_named_as_it_is(folder, capsys):
    command = "train model.onnx --data d.npz -o t.onnx --epochs 1 --quiet"
    assert run(capsys, *command.split())[0] == 0
    code, out, _ = run(capsys, "report", "runs/model-1", "-o", "[red].html")
    assert (code, out.splitlines()[-1]) == (0, "page    [red].html")
    assert Path("[red].html").exists()


def test_a_run_that_goes_on_is_compared_by_its_last_epoch(folder, capsys):
    more = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 2, "--quiet")
    assert run(capsys, *more)[0] == 0
    Path("runs/model-1/result.json").unlink()
    code, out, _ = run(capsys, "report", "runs/model-1")
    assert code == 0
    assert "accuracy" in out
