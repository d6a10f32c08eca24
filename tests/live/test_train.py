"""Recorded answers of PyTorch and peft are theirs today, and peft loads the adapters that are written."""

from __future__ import annotations

import numpy as np
import pytest
from train.test_against_torch import golden
from train.test_lora import FOLDER, SETTINGS, made

pytestmark = pytest.mark.live


@pytest.mark.parametrize("table", ["curves", "optimizers", "schedules", "losses"])
def test_recorded_answers_are_those_of_torch(table):
    from golden.record_torch import TABLES

    recorded = golden(table)
    for key, array in TABLES[table]().items():
        np.testing.assert_allclose(array, recorded[key], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("title", "variant"), SETTINGS)
def test_recorded_curves_are_those_of_peft(title, variant):
    from golden.record_lora import curve

    recorded = np.load(FOLDER / "curves.npz")[f"{title}/{variant}"]
    np.testing.assert_allclose(curve(title, variant), recorded, rtol=1e-6)


@pytest.mark.parametrize(("title", "variant"), SETTINGS)
def test_peft_loads_the_folder(title, variant, tmp_path):
    import torch
    from golden.record_lora import network
    from peft import PeftModel

    trainer, batches = made(title, variant)
    for batch in batches[:5]:
        trainer.step(*batch)
    trainer.save_adapter(tmp_path / "a")
    loaded = PeftModel.from_pretrained(network(title.split()[0], torch.float32), tmp_path / "a")
    x = batches[0][0]
    with torch.no_grad():
        got = loaded(torch.tensor(x)).numpy()
    np.testing.assert_allclose(got, trainer.predict(x), rtol=0, atol=1e-5)
