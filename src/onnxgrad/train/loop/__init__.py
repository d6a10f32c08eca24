"""Epochs, validation, evaluation."""
