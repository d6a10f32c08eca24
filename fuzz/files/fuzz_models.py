"""Models, changed by reflection over their fields, through inspect, vjp and a step of training. For atheris."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

import engine
import mutate
import onnx
import seeds

STARTS = [model.SerializeToString() for model in seeds.models()]

with atheris.instrument_imports(include=["onnxgrad"]):
    import targets

    for start in STARTS:
        targets.model(start)


def change(head: bytes, content: bytes, rng: random.Random) -> bytes:
    """Change the message, where the bytes are one; a seed model, where they are not."""
    try:
        proto = onnx.load_model_from_string(content)
    except Exception:  # protobuf's own class of it differs between its versions
        proto = onnx.load_model_from_string(rng.choice(STARTS))
    mutate.mutate_message(proto, rng)
    return proto.SerializeToString()


if __name__ == "__main__":
    engine.fuzz(targets.model, STARTS, 0, change)
