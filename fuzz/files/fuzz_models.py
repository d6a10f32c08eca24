"""Models, changed by reflection over their fields, through inspect, vjp and a step of training. For atheris."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["onnxgrad", "onnx_ir"]):
    import targets

import mutate
import onnx
import seeds


def test_one_input(data: bytes) -> None:
    targets.model(data)


def mutator(data: bytes, max_size: int, seed: int) -> bytes:
    """A change of the message, where the bytes are one; of a seed model, where they are not."""
    rng = random.Random(seed)
    try:
        proto = onnx.load_model_from_string(data)
    except Exception:
        proto = rng.choice(seeds.models())
    mutate.mutate_message(proto, rng)
    changed = proto.SerializeToString()
    return changed if len(changed) <= max_size else data[:max_size]


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input, custom_mutator=mutator)
    atheris.Fuzz()
