"""A notebook, executed in a real kernel: the bar of `fit(verbose=1)`, the curves, the learning-rate finder."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxgrad.sklearn import mlp

pytestmark = pytest.mark.live
nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = [
    """
    import numpy as np, onnxgrad
    data = np.load("d.npz")
    trainer = onnxgrad.Trainer("model.onnx", loss="cross_entropy", lr=1e-2, metrics="accuracy")
    history = trainer.fit(data["x"], data["y"], validation=0.2, epochs=3, verbose=1)""",
    "history.plot()",
    "trainer.find_lr(data['x'], data['y'], steps=20)",
    """
    from onnxgrad.sklearn import OnnxClassifier
    OnnxClassifier("model.onnx", epochs=2, verbose=1).fit(data["x"], data["y"])""",
]


def test_progress_and_pictures_are_in_the_executed_notebook(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=x[:, :3].argmax(1))
    onnx.save(mlp(4, 3), tmp_path / "model.onnx")
    cells = [
        nbformat.v4.new_code_cell("\n".join(line.strip() for line in c.strip().splitlines()))
        for c in CELLS
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    fit, curves, finder, estimator = (cell.outputs for cell in notebook.cells)
    shown = [o.data["text/html"] for o in fit if "text/html" in o.get("data", {})]
    assert len(shown) == 1  # drawn over and over in one place, never below each other
    assert "<progress" in shown[0]
    assert "max='24' value='24'" in shown[0]  # 240 rows in batches of 32, three times
    assert shown[0].count("val_accuracy") == 3
    for outputs, title in ((curves, "accuracy by epoch"), (finder, "loss by learning rate")):
        svg = outputs[-1].data["image/svg+xml"]
        assert "".join(svg).startswith("<svg")
        assert title in "".join(svg)
    assert any("<progress" in o.data.get("text/html", "") for o in estimator if "data" in o)
