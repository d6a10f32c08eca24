"""The names, files and operators of onnxruntime.training 1.19.2."""
