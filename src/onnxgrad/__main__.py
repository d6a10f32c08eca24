"""`python -m onnxgrad` is `onnxgrad`."""

import sys

from onnxgrad.cli import main

sys.exit(main())
