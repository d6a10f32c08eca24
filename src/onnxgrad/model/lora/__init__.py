"""LoRA: a frozen model with small trained branches beside its layers.

settings.py   what a user asks for: `Lora(r=8, alpha=16, ...)`, and the same from a line of text
layers.py     the layers of a model that can carry a branch, in whatever form their weights are kept
targets.py    which of them a setting means
branch.py     the branch written into the graph, for training and for a file that takes adapters
adapter.py    a model with its branches: apply, describe, write back
peft.py       adapters as a folder that peft reads and writes
ort_file.py   adapters as the .onnx_adapter file of onnxruntime
"""

from onnxgrad.model.lora.settings import Lora

__all__ = ["Lora"]
