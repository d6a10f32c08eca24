"""What onnxruntime-training 1.19.2 left behind: its files and its operators, read and written here.

The names that its users know are `onnxgrad.dropin.artifacts`, `onnxgrad.dropin.api` and `onnxgrad.dropin.onnxblock`.
"""
