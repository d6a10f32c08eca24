"""`inspect` and Trainer say the same of the models with reference gradients that lie beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from model.test_same import check_same

pytestmark = pytest.mark.live
FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "models"
FILES = sorted(FOLDER.glob("*.onnx"))  # none where the folder is not there


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_they_say_the_same(path):
    check_same(path)
