"""One training step: the graph, its session, its buffers, the optimizer call."""
