"""What a run writes: checkpoints and the tuned model."""
