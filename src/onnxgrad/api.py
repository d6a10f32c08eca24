"""The public name of `onnxgrad.dropin.api`, as in `onnxruntime.training.api`."""

from onnxgrad.dropin.api import *  # noqa: F403  (for editors: the module itself takes this one's place)
from onnxgrad.dropin.publish import publish

publish("onnxgrad.dropin.api", __name__)
