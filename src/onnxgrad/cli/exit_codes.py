"""What the exit codes mean, for every subcommand."""

OK = 0
FAILED = 1  # a check found something wrong
USAGE = 2  # wrong arguments, or a file that cannot be read
NOT_TRAINABLE = 3  # an operator or a model without a gradient
DIVERGED = 4
INTERNAL = 70  # a bug of onnxgrad
INTERRUPTED = 130
