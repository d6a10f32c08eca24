"""The public name of `onnxgrad.dropin.onnxblock`, as in `onnxruntime.training.onnxblock`."""

from onnxgrad.dropin.onnxblock import *  # noqa: F403  (for editors: the module itself takes this one's place)
from onnxgrad.dropin.publish import publish

publish("onnxgrad.dropin.onnxblock", __name__)
