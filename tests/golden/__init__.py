"""What onnxruntime-training-cpu 1.19.2 computed, recorded by `python tests/golden/record.py`."""
