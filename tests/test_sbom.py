"""The bill of materials lists what is installed, and nothing that it lists is missing a version."""

import importlib.util
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / ".ci/sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_dependency_is_listed_with_its_version(sbom: ModuleType) -> None:
    bill = sbom.bill()
    listed = {c["bom-ref"]: c for c in bill["components"]}
    scopes = {c["name"].lower(): c["scope"] for c in listed.values()}
    for name in ("torch", "numpy", "safetensors", "pydantic", "typer"):
        assert listed[f"pkg:pypi/{name}@{version(name)}"]["version"] == version(name)
        assert scopes[name] == "required"
    assert scopes["pytest"] == scopes["flwr"] == "optional"
    known = {*listed, bill["metadata"]["component"]["bom-ref"]}
    assert {d["ref"] for d in bill["dependencies"]} == known
    assert all(set(d["dependsOn"]) <= known for d in bill["dependencies"])
    assert sbom.bill() == bill
