"""What the numbers mean: one float64 function per operator, written from the maths, never from the kernel.

`reference.<op>.<op>(inputs by name, attributes by name)` returns the outputs in order. A family that is judged
relative to its largest term also has `scale(...)`, which broadcasts against the output.
"""
