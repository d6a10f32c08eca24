"""Writing files."""
