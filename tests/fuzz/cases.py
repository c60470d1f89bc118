"""The kinds of cases: each writes its files, says which command reads them, and what an accepted input must lead to."""

import json
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from fuzz import arrays
from fuzz.mutations import NASTY, alike, bytes_changed, cut, flip, values_changed, without
from fuzz.world import BENCH, EXPERIMENT, FORGETTING, SHORT, World

Check = Callable[[], str]  # returns what is wrong with an accepted input; empty if nothing


def fine() -> str:
    """Accept whatever was accepted."""
    return ""


@dataclass(frozen=True)
class Case:
    """A command and what it must not do.

    Attributes:
        args: Arguments of the command.
        accepted: Check after exit code 0.
        drawn: Whether the report is drawn, which takes a second.
        codes: Exit codes that are allowed.
        kept: Directories in which a refusal must change nothing.
        note: What was changed, for the report of a failure.
        loose: Name of a check that could not be made, for the summary; empty if all were.
    """

    args: list[str]
    accepted: Check = fine
    drawn: bool = False
    codes: tuple[int, ...] = (0, 2)
    kept: tuple[Path, ...] = ()
    note: str = ""
    loose: str = ""


Kind = Callable[[World, Path, Random], Case]


# Experiment files ------------------------------------------------------------------------------------------------


def experiment_text(world: World, place: Path, random: Random) -> Case:
    """An experiment file with other bytes."""
    return _train(place, bytes_changed((world.path / "experiment.toml").read_bytes(), random))


def experiment_values(world: World, place: Path, random: Random) -> Case:
    """An experiment file with other values."""
    return _train(place, toml(values_changed(EXPERIMENT, random)))


def _train(place: Path, data: bytes) -> Case:
    (place / "experiment.toml").write_bytes(data)
    args = ["train", "experiment.toml", "--out", "run"]
    return Case(args, lambda: _unused(tomllib.loads(data.decode()), _config(place)["experiment"]))


def experiment_options(world: World, place: Path, random: Random) -> Case:
    """A good experiment file, with --set."""
    shutil.copy(world.path / "experiment.toml", place)
    section = random.choice([key for key, value in EXPERIMENT.items() if isinstance(value, dict)])
    key = random.choice(list(EXPERIMENT[section]))
    value = alike(EXPERIMENT[section][key], random) if random.random() < 0.6 else random.choice(NASTY)
    text = f"{section}.{key}={_word(value)}"
    args = ["train", "experiment.toml", "--out", "run", "--set", text.replace("\0", "\\u0000")]
    return Case(args, lambda: _set(text, _config(place)["experiment"][section], key))


def bench(world: World, place: Path, random: Random) -> Case:
    """A bench file with other bytes or other values."""
    data = (world.path / "bench.toml").read_bytes()
    data = bytes_changed(data, random) if random.random() < 0.4 else toml(values_changed(BENCH, random))
    (place / "bench.toml").write_bytes(data)
    return Case(["bench", "bench.toml", "--out", "out", "--scale", random.choice(("tiny", "tiny", "full"))])


# Requests and options --------------------------------------------------------------------------------------------


def request_file(world: World, place: Path, random: Random) -> Case:
    """A file of samples to forget, with other bytes or other values."""
    good = {"1": [0, 5], "2": [3]}
    if random.random() < 0.5:
        data = bytes_changed(json.dumps(good).encode(), random)
    else:
        data = json.dumps(values_changed(good, random)).encode()
    (place / "rows.json").write_bytes(data)

    def used() -> str:
        asked = json.loads(data, object_pairs_hook=_pairs)
        stored = {i: list(rows) for i, rows in _json(place / "run/request.json")["samples"].items()}
        return "" if stored == asked else f"the file asks for {asked}, and {stored} was forgotten"

    return Case(["unlearn", str(world.trained), "--samples", "rows.json", "--out", "run"], used)


IDS = ("0", "1", "2", "3", "4", "-1", "01", "1.0", " 1", "", "x", "é", "1/forget", "9" * 30, "x" * 300, "\udcff")


def request_options(world: World, place: Path, random: Random) -> Case:
    """Clients or classes to forget, on the command line."""
    option = random.choice(("--clients", "--classes"))
    words = [random.choice(IDS) for _ in range(random.randint(0, 3))]
    text = ",".join(words)

    def used() -> str:
        stored = _json(place / "run/request.json")
        asked = list(dict.fromkeys(w.strip() for w in words if w.strip()))
        found = list(map(str, stored["clients"] if option == "--clients" else stored["classes"]))
        asked = asked if option == "--clients" else list(dict.fromkeys(str(int(w)) for w in asked))
        return "" if found == asked else f"{option} {text!r} became {found}"

    return Case(["unlearn", str(world.trained), option, text, "--out", "run"], used)


def method_options(world: World, place: Path, random: Random) -> Case:
    """Options of a method."""
    import dataclasses

    from fupareto.methods.registry import METHODS, VARIANTS

    known = METHODS | VARIANTS
    name = random.choice(list(known))
    field = random.choice(dataclasses.fields(known[name]))
    key, default = field.name, field.default
    value = alike(default, random) if random.random() < 0.6 else random.choice(NASTY)
    text = f"{key}={_word(value)}"
    args = ["unlearn", str(world.trained), "--out", "run", "--method", name]
    has = {f.name for f in dataclasses.fields(known[name])} - {key}
    args += [word for name in ("rounds", "recovery_rounds") if name in has for word in ("--set", f"{name}=1")]
    args += ["--set", text.replace("\0", "\\u0000")]
    return Case(args, lambda: _set(text, _config(place)["method"], key))


def command_line(world: World, place: Path, random: Random) -> Case:
    """Any command with any option."""
    run = random.choice(
        (str(world.forgotten("fupareto")), str(world.trained), "nothing", "", "x" * 300, "/dev/null", ".")
    )
    value = _word(random.choice(NASTY)).replace("\0", "")
    command = random.choice(
        (
            [
                "compare",
                run,
                run,
                "--json",
                "--out",
                random.choice(("page.html", "x" * 300, ".", "/dev/full", "a/b/c")),
            ],
            ["methods", value],
            ["data", "get", f"{value}-"],
            ["data", "list", "--data", value],
            ["report", run, "--figures", value],
            ["verify", value],
            ["verify", run, "--data", value],
            ["certify", run, "--out", value],
            ["init", f"{value}/x.toml"],
            ["train", value, "--out", "run"],
            ["train", str(world.path / "experiment.toml"), "--out", f"{value}/run", "--seed", value],
            ["train", str(world.path / "experiment.toml"), "--out", "run", "--record", value],
            ["train", str(world.path / "experiment.toml"), "--out", "run", "--data", value, "--device", value],
            ["unlearn", value, "--out", "run"],
            ["unlearn", str(world.trained), "--method", value, "--out", "run"],
            ["unlearn", str(world.trained), "--samples", value, "--out", "run"],
            ["audit", value],
            ["audit", run, "--threshold", f"{random.choice(('asr', 'x'))}={value}", "--reference", value],
            ["bench", value],
            [value],
        )
    )
    return Case(command, codes=(0, 1, 2) if command[0] == "verify" else (0, 2), kept=(world.path,), note=str(command))


# Data ------------------------------------------------------------------------------------------------------------


def npz_bytes(world: World, place: Path, random: Random) -> Case:
    """An .npz file with flipped bits, or cut, or otherwise changed."""
    data = (world.path / "samples.npz").read_bytes()
    change = random.choice((flip, flip, cut, bytes_changed))
    (place / "samples.npz").write_bytes(change(data, random))
    return _on_samples(
        place, lambda: arrays.differing(place / "samples.npz", world.path / "samples.npz"), change.__name__
    )


def npz_arrays(world: World, place: Path, random: Random) -> Case:
    """An .npz file with other arrays."""
    note, accepted = arrays.write(place / "samples.npz", world, random)
    return _on_samples(place, accepted, note)


def _on_samples(place: Path, accepted: Check, note: str) -> Case:
    settings = {**EXPERIMENT, "data": {"source": "samples.npz"}, "backdoor": {"enabled": False}}
    (place / "experiment.toml").write_bytes(toml(settings))
    return Case(["train", "experiment.toml", "--out", "run"], accepted, note=note)


def published(world: World, place: Path, random: Random) -> Case:
    """The files of a published data set, one of them changed."""
    shutil.copytree(world.path / "sets", place / "sets")
    path = random.choice(sorted((place / "sets/fashion-mnist").iterdir()))
    path.write_bytes(random.choice((flip, cut, bytes_changed))(path.read_bytes(), random))
    settings = {**EXPERIMENT, "data": {"source": "fashion-mnist"}, "partition": {"kind": "iid", "clients": 2}}
    (place / "experiment.toml").write_bytes(toml(settings))
    args = ["train", "experiment.toml", "--data", "sets", "--out", "run"]
    return Case(args, lambda: arrays.idx_differing(path, world.path / "sets"), note=path.name)


# Run directories -------------------------------------------------------------------------------------------------

READ = {  # what commands read of a finished unlearning run, or of the training run beside it
    "report": ("config.toml", "summary.json", "audit.json", "rounds.jsonl"),
    "compare": ("config.toml", "summary.json", "audit.json", "rounds.jsonl"),
    "audit": ("config.toml", "request.json", "summary.json", "rounds.jsonl", "*.safetensors"),
    "certify": ("config.toml", "request.json", "summary.json", "audit.json", "*.safetensors"),
    "unlearn": ("config.toml", "summary.json", "initial.safetensors", "history/**/*"),
}
MODELS = (".safetensors",)


def run_cut(world: World, place: Path, random: Random) -> Case:
    """A run directory with one file cut off."""
    return _on_run(world, place, random, lambda data: cut(data, random), "cut")


def run_flipped(world: World, place: Path, random: Random) -> Case:
    """A run directory with one bit flipped."""
    return _on_run(world, place, random, lambda data: flip(data, random), "flipped")


def run_values(world: World, place: Path, random: Random) -> Case:
    """A run directory with other values in a JSON or TOML file."""

    def changed(data: bytes) -> bytes:
        if data.startswith((b"format", b"kind")):
            return toml(values_changed(tomllib.loads(data.decode()), random))
        lines = data.decode().splitlines() if data.startswith(b'{"round"') else [data.decode()]
        number = random.randrange(len(lines))
        lines[number] = json.dumps(values_changed(json.loads(lines[number]), random))
        return "\n".join([*lines, ""]).encode()

    return _on_run(world, place, random, changed, "values", documents=True)


def _on_run(
    world: World, place: Path, random: Random, change: Callable[[bytes], bytes], how: str, documents: bool = False
) -> Case:
    command = random.choices(list(READ), (1, 1, 8, 8, 12))[0]
    method = random.choice(FORGETTING) if command == "unlearn" else "fupareto"
    source = world.trained if command == "unlearn" else world.forgotten(method)
    shutil.copytree(source, place / "it")
    (place / "it/certificate.json").unlink(missing_ok=True)
    found = [p for pattern in READ[command] for p in sorted((place / "it").glob(pattern)) if p.is_file()]
    found = [p for p in found if not (documents and p.suffix in MODELS)]
    path = random.choice(found)
    before, after = path.read_bytes(), change(path.read_bytes())
    path.write_bytes(after)
    args = {
        "report": ["report", "it"],
        "compare": ["compare", "it", str(world.forgotten("fupareto")), "--out", "page.html"],
        "audit": ["audit", "it", "--dormancy", "0"],
        "certify": ["certify", "it"],
        "unlearn": ["unlearn", "it", "--method", method, *SHORT, "--out", "run"],
    }[command]
    name = str(path.relative_to(place / "it"))
    provable = world.has_manifest or (how == "cut" and path.suffix in (*MODELS, ".json"))

    def noticed() -> str:
        whose = ("index.json", method) if method != "fupareto" else ()  # FUPareto reads no history
        unneeded = name.startswith("history/") and not any(part in name for part in whose)
        if name.startswith("history/") and path.suffix == ".json":  # their seal is of values, not of bytes
            unneeded = unneeded or json.loads(before) == json.loads(after)
        if name.startswith("history/") and path.suffix in MODELS:  # of a client whose model the method does not use
            made = [root / "unlearned.safetensors" for root in (place / "run", world.forgotten(method))]
            unneeded = unneeded or made[0].read_bytes() == made[1].read_bytes()
        return "" if before == after or unneeded or not provable else f"{name} was {how}, and nobody noticed"

    loose = (
        "" if provable else f"{'weights' if path.suffix in MODELS else 'documents'} {how}, runs have no manifest.json"
    )
    kept = (place / "it",) if command in ("report", "compare", "certify", "unlearn") else ()
    return Case(args, noticed, command in ("report", "compare"), kept=kept, note=f"{name} {how}", loose=loose)


KINDS: dict[str, tuple[int, Kind]] = {  # name -> share of the cases, and how one is made
    "experiment text": (12, experiment_text),
    "experiment values": (14, experiment_values),
    "experiment --set": (8, experiment_options),
    "bench file": (5, bench),
    "request file": (8, request_file),
    "request options": (5, request_options),
    "method options": (10, method_options),
    "command line": (10, command_line),
    "npz bytes": (5, npz_bytes),
    "npz arrays": (6, npz_arrays),
    "published data": (4, published),
    "run cut": (4, run_cut),
    "run flipped": (5, run_flipped),
    "run values": (8, run_values),
}


# What was stored -------------------------------------------------------------------------------------------------


def toml(value: Any) -> bytes:
    """Return plain values as TOML, without those that it cannot have."""
    value = without(value, lambda v: v is None)
    return tomli_w.dumps(value if isinstance(value, dict) else {"value": value}).encode()


def _word(value: Any) -> str:
    """Return a value as it is typed behind an equals sign."""
    if isinstance(value, str):
        return value if len(value) % 2 else json.dumps(value)
    text = tomli_w.dumps({"v": without(value, lambda v: v is None)}) if value is not None else "v = none"
    return " ".join(text.removeprefix("v = ").split()) if not text.startswith("[") else "{}"


def _config(place: Path) -> dict[str, Any]:
    return tomllib.loads((place / "run/config.toml").read_text())


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        return {"twice": pairs}
    return dict(pairs)


def _set(text: str, stored: Mapping[str, Any], key: str) -> str:
    """Say what is wrong if an option is not stored as it was given."""
    typed = text.partition("=")[2]
    try:
        given = tomllib.loads(f"value = {typed}")["value"]
    except tomllib.TOMLDecodeError:
        given = typed
    return _unused({key: given}, stored)


def _unused(given: Any, stored: Any, where: str = "") -> str:
    """Say which value of a file is not stored as it was given; a number may have become a float, an id text."""
    if isinstance(given, dict) and isinstance(stored, dict):
        found = (_unused(value, stored.get(key), f"{where}.{key}") for key, value in given.items())
        return next(filter(None, found), "")
    if isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        return next(filter(None, (_unused(g, s, where) for g, s in zip(given, stored, strict=True))), "")
    same = given == stored and isinstance(given, bool) == isinstance(stored, bool)
    if same or (where.endswith(".clients") and str(given) == stored):
        return ""
    return f"{where.lstrip('.')} = {given!r:.80} is stored as {stored!r:.80}"
