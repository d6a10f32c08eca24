"""Data from files and arrays, as batches that a model takes."""
