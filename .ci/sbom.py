"""Software bill of materials of this environment: fupareto and every package that it needs, as CycloneDX 1.6 JSON.

    python .ci/sbom.py sbom.json

What is listed is what is installed. Packages of the extras (Flower, documentation, tests) have the scope ``optional``.
The same environment gives the same file.
"""

import json
import re
import sys
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "fupareto"
SPDX = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def installed(name: str) -> Distribution | None:
    """Return an installed distribution; None where it is not installed."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def needed(found: Distribution, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """Return the installed packages that a package needs on this platform, with the extras that it asks of them."""
    names = set()
    for text in found.requires or ():
        wanted = Requirement(text)
        here = wanted.marker is None or any(wanted.marker.evaluate({"extra": e}) for e in extras | {""})
        if here and installed(wanted.name) is not None:
            names.add((str(canonicalize_name(wanted.name)), frozenset(wanted.extras)))
    return names


def closure(extras: frozenset[str]) -> dict[str, set[str]]:
    """Return every package that fupareto with these extras needs, and what each of them needs."""
    graph: dict[str, set[str]] = {}
    seen, todo = set[tuple[str, frozenset[str]]](), [(ROOT, extras)]
    while todo:
        name, asked = todo.pop()
        if (name, asked) not in seen and (found := installed(name)) is not None:
            seen.add((name, asked))
            inner = needed(found, asked)
            graph.setdefault(name, set()).update({other for other, _ in inner} - {name})
            todo += inner
    return graph


def reference(name: str) -> str:
    """Return the package URL of an installed package."""
    return f"pkg:pypi/{name}@{distribution(name).version}"


def component(name: str, kind: str, scope: str) -> dict[str, Any]:
    """Return what is known of an installed package."""
    about = distribution(name).metadata
    found = {"type": kind, "bom-ref": reference(name), "name": about["Name"], "version": about["Version"]}
    licence = about.get("License-Expression") or (about.get("License") or "").strip().split("\n")[0][:100]
    classified = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    if about.get("License-Expression") and SPDX.fullmatch(licence):
        found["licenses"] = [{"expression": licence}]
    elif licence or classified:
        found["licenses"] = [{"license": {"name": name}} for name in classified or [licence]]
    return found | {"purl": reference(name), **({"scope": scope} if scope else {})}


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    extras = frozenset(distribution(ROOT).metadata.get_all("Provides-Extra") or ())
    required, graph = closure(frozenset()), closure(extras)
    others = sorted(graph.keys() - {ROOT})
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(ROOT, "application", "")},
        "components": [component(n, "library", "required" if n in required else "optional") for n in others],
        "dependencies": [{"ref": reference(n), "dependsOn": sorted(map(reference, graph[n]))} for n in sorted(graph)],
    }
    return {**found, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))}"}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2) + "\n", encoding="utf-8")
    print(sys.argv[1])
