"""The example in the docstring of each public name runs, and prints what it shows."""

import doctest
import inspect
import json
import shutil
import warnings
from pathlib import Path

import pytest

import adiabat
from adiabat.config.section import Section
from adiabat.core.errors import AdiabatError
from adiabat.models import model_paths
from tests.commands import DOCUMENTS, PAIRS, lines
from tests.pages import no_page as no_page
from tests.tiny import save_tiny, save_tiny_reranker

SUITE = """
[[tasks]]
kind = "retrieval"
name = "test"
data = "test.jsonl"
corpus = "corpus.jsonl"
[measure]
resamples = 100
"""
SQUAD = {
    "title": "T",
    "paragraphs": [
        {
            "context": "Nodes are joined by edges. Trees are graphs.",
            "qas": [{"id": "1", "question": "What?", "answers": [{"text": "Nodes", "answer_start": 0}]}],
        }
    ],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name, rows in {"corpus": DOCUMENTS, "train": PAIRS, "test": PAIRS}.items():
        lines(folder / f"{name}.jsonl", rows)
    by_tenant = [{**pair, "tenant": name} for name in ("chemists", "physicists") for pair in PAIRS]
    lines(folder / "tenants.jsonl", by_tenant)
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    (folder / "train-v1.1.json").write_text(json.dumps({"version": "1.1", "data": [SQUAD]}), encoding="utf-8")
    # Of two blocks: this one has errors to learn from.
    save_tiny(folder / "model", layers=2)
    save_tiny_reranker(folder / "reranker")
    return folder


def is_kind_of_others(name: str) -> bool:
    """Settings and the children of AdiabatError show nothing that their base does not."""
    public = getattr(adiabat, name)
    return (
        inspect.isclass(public) and issubclass(public, Section | AdiabatError) and public is not AdiabatError
    )


NAMES = [name for name in adiabat.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", [name for name in NAMES if not is_kind_of_others(name)])
def test_the_example_runs_and_prints_what_it_shows(
    name: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model `demo` of the examples is a tiny one here."""
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_paths, "demo_model_folder", lambda: tmp_path / "model")
    finder, runner = (
        doctest.DocTestFinder(recurse=False),
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE),
    )
    (example,) = finder.find(getattr(adiabat, name), name, globs={"adiabat": adiabat})
    assert example.examples, f"adiabat.{name} must have an example in its docstring"
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner.run(example, out=said.append)
    assert not runner.summarize(verbose=False).failed, "".join(said)


@pytest.mark.parametrize("name", [name for name in NAMES if is_kind_of_others(name)])
def test_settings_and_errors_say_what_they_are_for(name: str) -> None:
    public = getattr(adiabat, name)
    assert public.__doc__
    assert not issubclass(public, Section) or public()


def test_the_names_that_are_public() -> None:
    verbs = {"embed", "tune", "train", "evaluate", "search", "load", "import_vectors"}
    assert {*verbs, "Store", "AdiabatError", "TuneSettings"} <= {*NAMES}
    assert len(NAMES) == len({*NAMES})
