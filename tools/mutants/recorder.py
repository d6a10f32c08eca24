"""A pytest plugin that notes which lines of the package every test runs, and how long it takes.

`tests_of.record` starts it. Each process writes a data file of coverage.py, whose contexts are the tests, and its
durations. Programs that a test starts are recorded by `hook/`, under the test that started them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from onnxgrad_mutant import start_coverage

FOLDER = Path(os.environ["ONNXGRAD_RECORD"])
EVERY = 50  # tests
coverage = start_coverage("")
durations: dict[str, float] = {}
failed: set[str] = set()  # without any mistake: they say nothing
collected: dict[str, float] = {}  # seconds that a file takes to collect


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    coverage.switch_context(item.nodeid)
    started = time.perf_counter()
    yield
    durations[item.nodeid] = time.perf_counter() - started
    coverage.switch_context("")
    if len(durations) % EVERY == 0:  # of use, too, when somebody stops the run
        save()


def pytest_runtest_logreport(report):
    if report.failed:
        failed.add(report.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    started = time.perf_counter()
    yield
    if isinstance(collector, pytest.Module):
        collected[collector.nodeid] = time.perf_counter() - started


def pytest_sessionfinish():
    coverage.stop()
    save()


def save() -> None:
    coverage.save()
    passed = {test: seconds for test, seconds in durations.items() if test not in failed}
    seconds = {"tests": passed, "files": collected}
    (FOLDER / f"seconds-{os.getpid()}.json").write_text(json.dumps(seconds))
