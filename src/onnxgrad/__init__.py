"""Train ONNX models on the ONNX Runtime you already have."""
