"""The public name of `onnxgrad.dropin.artifacts`, as in `onnxruntime.training.artifacts`."""

from onnxgrad.dropin.artifacts import *  # noqa: F403  (for editors: the module itself takes this one's place)
from onnxgrad.dropin.publish import publish

publish("onnxgrad.dropin.artifacts", __name__)
