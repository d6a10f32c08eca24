"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal


def pytest_configure(config):
    """Background jobs of a shell, and all that they start, ignore Ctrl-C; some tests send it to what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
