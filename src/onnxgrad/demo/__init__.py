"""Small networks as ONNX files, built without PyTorch, and real data to train them on."""
