"""With onnxruntime-training-cpu 1.19.2 beside us: it reads what we write. Run by `make check`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from dropin import nets
from dropin.goldens import GOLDEN, HERE, RATES, expected, train
from dropin.old_cases import CASES
from golden.record import old_python

from onnxgrad.api import CheckpointState
from onnxgrad.dropin.old import checkpoint

pytestmark = pytest.mark.live


def in_old_package(*arguments: object) -> str:
    command = [old_python(), HERE / "old_program.py", *arguments]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def job(name: str, optimizer: str, start: Path, first: int) -> dict:
    folder = GOLDEN / name
    return {
        "training_model": str(folder / "training_model.onnx"),
        "optimizer_model": str(folder / optimizer / "optimizer_model.onnx"),
        "batches": str(folder / "batches.npz"),
        "checkpoint": str(start), "rate": RATES[optimizer], "first": first, "last": 100,
    }  # fmt: skip


def run_jobs(jobs: list[dict], folder: Path) -> list[dict]:
    (folder / "jobs.json").write_text(json.dumps(jobs))
    printed = in_old_package(HERE / "continue_old.py", folder / "jobs.json")
    return json.loads(printed.split("RESULT")[1])


def test_the_old_package_continues_from_our_checkpoints(tmp_path):
    jobs = []
    for name in nets.NETS:
        for optimizer in RATES:
            _, state = train(name, optimizer, "checkpoint", range(50))
            state.properties["where"] = "ours"
            start = tmp_path / f"{name}_{optimizer}"
            CheckpointState.save_checkpoint(state, start, include_optimizer_state=True)
            jobs.append((name, optimizer, start))
    found = run_jobs([job(*each, first=50) for each in jobs], tmp_path)
    for (name, optimizer, _), result in zip(jobs, found, strict=True):
        old = expected(name, optimizer)[50:100]
        np.testing.assert_allclose(result["losses"], old, rtol=0, atol=1e-4)
        assert result["properties"] == {"where": "ours"}


def test_the_old_package_reads_our_data_files(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EXTERNAL_ABOVE", 0)
    found = checkpoint.read(GOLDEN / "cnn" / "checkpoint")
    checkpoint.write(found, tmp_path / "large")
    assert (tmp_path / "large.data").exists()
    (result,) = run_jobs([job("cnn", "SGD", tmp_path / "large", first=0)], tmp_path)
    np.testing.assert_allclose(result["losses"], expected("cnn", "SGD")[:100], rtol=0, atol=1e-4)


def test_the_old_operators_mean_what_the_cases_say(tmp_path):
    chosen = [c for c in CASES if c.old_runs_it]
    assert len(chosen) > 12
    for i, case in enumerate(chosen):
        path = tmp_path / f"{i}.onnx"
        onnx.save(case.model(), path)
        np.savez(f"{path}.in.npz", **case.inputs)
    in_old_package(HERE / "run_cases.py", tmp_path)
    for i, case in enumerate(chosen):
        found = np.load(tmp_path / f"{i}.onnx.out.npz")
        for got, wanted in zip((found[k] for k in found.files), case.expected(), strict=True):
            got = np.sort(got) if case.op == "BroadcastGradientArgs" else got  # in any order
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
            assert got.shape == wanted.shape
