"""The networks of bench/lora.py: those of networks.py, with the layers that an adapter has."""

from __future__ import annotations

# name -> (the network, the layers that are adapted, tokens of a step)
PROBLEMS = {
    "encoder": ("bert", ("q", "v"), 4 * 128),
    "decoder": ("gpt", ("qkv",), 4 * 256),
}
SETTINGS = {"r": 8, "lora_alpha": 16}
KEPT = "head"  # in floats, in models of 4 bits too
