"""Every file in experiments/ can be run: it loads at each of its scales, and names the paper's rows as they are."""

import tomllib
from pathlib import Path

import pytest

from fupareto import config, paper
from fupareto.bench import file

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.toml"))
BENCHES = [path for path in FILES if "methods" in tomllib.loads(path.read_text())]


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_bench_files_load_at_every_scale(path: Path) -> None:
    for scale in (file.FULL, *tomllib.loads(path.read_text())["scales"]):
        bench = file.load(path, scale)
        paper.check(bench.paper, (m.paper for m in bench.methods), (s.paper for s in bench.settings))
        assert bench.name == path.stem
        assert scale == file.FULL or bench.reduced
        assert list(file.cells(bench, Path()))


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_every_bench_has_a_small_scale_that_is_smaller(path: Path) -> None:
    full, small = file.load(path), file.load(path, "small")

    def work(bench: file.Bench) -> int:
        return sum(
            c.experiment.train.rounds * (c.experiment.data.samples or 100_000) for c in file.cells(bench, Path())
        )

    assert 3 * work(small) < work(full)


@pytest.mark.parametrize("path", [p for p in FILES if p not in BENCHES], ids=lambda path: path.stem)
def test_experiment_files_load(path: Path) -> None:
    assert config.load(path).name == path.stem


def test_the_papers_tables_and_figures_all_have_a_file() -> None:
    names = {path.stem for path in BENCHES}
    assert {f"table1-{d}" for d in ("fmnist", "gtsrb", "cifar100")} <= names
    assert {f"ablation-{d}" for d in ("fmnist", "cifar10", "cifar100")} <= names
    assert {"convergence-cifar10", "population-fmnist", "heterogeneity-fmnist"} <= names
    assert {"sequential-fmnist", "runtime-fmnist", "requests-digits", "tune-fmnist"} <= names


def test_the_example_in_the_docs_is_a_bench_file(tmp_path: Path) -> None:
    page = (EXPERIMENTS.parent / "docs" / "bench.md").read_text()
    (tmp_path / "mine.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    for scale in (file.FULL, "small"):
        assert file.load(tmp_path / "mine.toml", scale).name == "mine"
    for path in BENCHES:
        assert f"`{path.stem}`" in page
