"""Python runs this first where the folder is on PYTHONPATH."""

import onnxgrad_mutant

onnxgrad_mutant.begin()
