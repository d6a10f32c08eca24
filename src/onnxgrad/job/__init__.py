"""The main job: one .onnx file and a dataset in, a tuned .onnx file, a run folder and a report out."""
