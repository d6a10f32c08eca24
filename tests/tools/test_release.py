"""What a release says of itself in several places says the same everywhere."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
import yaml

import onnxgrad

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 reads no TOML by itself")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def recipe() -> dict:
    return yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())


@pytest.fixture(scope="module")
def workflow() -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())


def versions_of(requirements: list) -> dict[str, str]:
    """{"numpy": ">=1.23,<3"}; where a name alone stands, ""."""
    found = {}
    for requirement in requirements:
        if isinstance(requirement, str):
            name, versions = re.fullmatch(r"([\w-]+)\s*(.*)", requirement).groups()
            found[name] = versions
    return found


def test_the_version_stands_in_one_place(settings, recipe):
    assert "version" not in settings["project"]
    assert (
        settings["tool"]["scikit-build"]["metadata"]["version"]["input"]
        == "src/onnxgrad/__init__.py"
    )
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == recipe["context"]["version"] == onnxgrad.__version__
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first[1] == onnxgrad.__version__


def test_what_the_package_needs_has_bounds(settings):
    """A new major version may break everything; those that follow no such rule have none."""
    without = {
        "flatbuffers",
        "rich",
    }  # their major version is a year, or changes for others' reasons
    needed = versions_of(settings["project"]["dependencies"])
    assert {n for n, v in needed.items() if "<" not in v} == without
    for name, versions in versions_of(settings["build-system"]["requires"]).items():
        assert re.fullmatch(r">=[\d.]+,<\d+", versions), name


def test_the_recipe_asks_for_what_the_package_asks_for(settings, recipe):
    names = {"python-flatbuffers": "flatbuffers"}  # as conda-forge calls it
    run = versions_of(recipe["requirements"]["run"])
    run.pop("python")
    assert {names.get(n, n): v for n, v in run.items()} == versions_of(
        settings["project"]["dependencies"]
    )
    host = versions_of(recipe["requirements"]["host"])
    assert {n: v for n, v in host.items() if v} == versions_of(settings["build-system"]["requires"])
    assert recipe["about"]["license"] == settings["project"]["license"]
    assert recipe["about"]["license_file"] == settings["project"]["license-files"]


def test_every_supported_python_gets_a_wheel(settings, workflow):
    said = [c.rpartition(" ")[2] for c in settings["project"]["classifiers"] if "Python :: 3." in c]
    built = [re.fullmatch(r"cp3(\d+)-\*", b)[1] for b in settings["tool"]["cibuildwheel"]["build"]]
    stable = settings["tool"]["scikit-build"]["wheel"]["py-api"]
    assert stable == f"cp3{built[-1]}"  # the last one that is built serves those after it
    later = workflow["jobs"]["later"]["strategy"]["matrix"]["python"]
    tried = [f"3.{minor}" for minor in built] + later
    assert said == tried[: len(said)]  # one that was never tried is not promised


def test_the_workflow_covers_the_four_systems(workflow):
    systems = [row["os"] for row in workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"]]
    assert systems == workflow["jobs"]["later"]["strategy"]["matrix"]["os"]
    assert [s.rstrip("-.0123456789") for s in systems] == [
        "ubuntu",
        "ubuntu-24.04-arm",
        "macos",
        "windows",
    ]
    assert set(workflow["jobs"]["publish"]["needs"]) == set(workflow["jobs"]) - {"publish"}


def test_the_licences_of_what_is_inside_are_there(settings):
    for name in settings["project"]["license-files"]:
        assert (ROOT / name).is_file(), name
    notices = (ROOT / "THIRD_PARTY_NOTICES").read_text()
    for owner in ("Wenzel Jakob", "Thibaut Goetghebuer-Planchon", "E. Alpaydin"):
        assert owner in notices, owner


def test_the_oldest_of_everything_is_tried(settings, monkeypatch):
    """The first row of `make versions` has the lower bounds; every Python has a row with the newest."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    rows = importlib.import_module("try_versions").ROWS
    oldest = dict(pin.split("==") for pin in rows[0].pinned)
    for name, versions in versions_of(settings["project"]["dependencies"]).items():
        if name in oldest:
            assert oldest[name].startswith(re.match(r">=([\d.]+)", versions)[1]), name
    assert {"onnxruntime", "onnx", "onnx-ir", "numpy"} <= set(oldest)
    pythons = [
        c.rpartition(" ")[2] for c in settings["project"]["classifiers"] if "Python :: 3." in c
    ]
    assert [row.python for row in rows if not row.pinned][: len(pythons)] == pythons


def test_every_target_of_the_cross_compiler_has_a_wheel(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    zig, wheels = importlib.import_module("zig"), importlib.import_module("wheels")
    assert set(wheels.TARGETS.values()) == {t.triple for t in zig.TARGETS if t.system == "Linux"}
    assert {(t.system, t.processor) for t in zig.TARGETS} == {
        ("Linux", "x86_64"),
        ("Linux", "aarch64"),
        ("Darwin", "arm64"),
        ("Windows", "AMD64"),
    }


def test_the_archive_is_built_with_what_it_asks_for(settings, monkeypatch):
    """tools/try_source.py reads the lists by itself, for a Python that reads no TOML."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    found = importlib.import_module("try_source").requirements()
    asked = settings["build-system"]["requires"] + settings["project"]["dependencies"]
    assert found[: len(asked)] == asked


def test_bits_of_two_machines_are_compared_by_operator(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    there = {f"A: {i}": {"in": "x", "out": str(i)} for i in range(4)}
    here = {**there, "A: 0": {"in": "x", "out": "other"}, "A: 1": {"in": "y", "out": "other"}}
    said = importlib.import_module("arm").compared(there, here)
    assert said.startswith("2 of 3 cases of 1 operators have equal bits (1 draw other inputs)")
    assert said.endswith("different: A 1 of 3")


def test_the_description_leads_nowhere_that_is_not_there(settings):
    """Package indexes show it, and have no repository to follow a relative link into."""
    text = (ROOT / settings["project"]["readme"]).read_text()
    assert not re.search(r"\]\((?!https?://)", text)
    assert text.startswith("# onnxgrad\n")
