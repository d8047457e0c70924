"""A SPEC: what candidates may have of their own, and that all of its faults are told at once."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.config.comparison_settings import (
    BATCH_SIZE,
    COMPARISONS,
    STEPS,
    CompareBackbonesSettings,
    CompareDataSettings,
    CompareSettings,
    laid_over,
)
from adiabat.config.reader import checked, read_settings
from adiabat.core.errors import ConfigError

SPEC = """
[compare]
out = "here"
[job]
model = "demo"
[train]
learning_rate = 1e-3
[data.columns]
query = "q"
[[tasks]]
data = "folder"
[[candidates]]
name = "one"
job.data = "one.jsonl"
data.columns.positive = "p"
[[candidates]]
name = "זה ‎2"
data.sources = [{path = "a.jsonl"}, {path = "b.jsonl", weight = 2.0}]
mixture.rule = "weights"
"""


def spec(tmp_path: Path, text: str = SPEC) -> Path:
    (tmp_path / "SPEC.toml").write_text(text, encoding="utf-8")
    return tmp_path / "SPEC.toml"


def fault(tmp_path: Path, text: str, kind: str = "data") -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(COMPARISONS[kind], spec(tmp_path, text))
    return str(caught.value)


def candidates(*tables: dict[str, Any], kind: str = "data", **common: Any) -> CompareSettings:
    return checked(COMPARISONS[kind], {"job": {"model": "m"}, **common, "candidates": list(tables)})


def test_a_candidate_becomes_the_common_run_with_its_own_tables_over_it(tmp_path: Path) -> None:
    settings = read_settings(CompareDataSettings, spec(tmp_path), ["train.temperature=0.1"])
    first, second = (settings.training(one, seed=7, out=Path("there")) for one in settings.candidates)
    assert (first.job.model, first.job.data, first.job.out, first.run.seed) == ("demo", "one.jsonl", "there", 7)
    assert first.data.columns.given() == {"query": "q", "positive": "p"}
    assert second.data.columns.given() == {"query": "q"}
    assert [source.weight for source in second.data.sources] == [1.0, 2.0]
    assert {(one.train.learning_rate, one.train.temperature) for one in (first, second)} == {(1e-3, 0.1)}


def test_the_short_run_is_the_sources_unless_the_spec_says_otherwise() -> None:
    def length(**train: Any) -> tuple[int | None, float, int]:
        settings = candidates({"name": "a", "job": {"data": "x"}}, train=train)
        run = settings.training(settings.candidates[0]).train
        return run.steps, run.epochs, run.batch_size

    assert (STEPS, BATCH_SIZE) == (2_000, 256)
    assert length() == (2_000, 1.0, 256)
    assert length(steps=5, batch_size=8) == (5, 1.0, 8)
    assert length(epochs=1.0) == (None, 1.0, 256)
    assert length(epochs=0.5) == (None, 0.5, 256)


def test_every_kind_of_fault_is_told_at_once_and_with_the_candidate_it_is_in(tmp_path: Path) -> None:
    text = SPEC.replace("out =", "outt =").replace('data = "folder"', 'dat = "folder"')
    text += '[[candidates]]\nname = "ONE"\ntrain.steps = 3\nmixture.temprature = 2.0\n'
    said = fault(tmp_path, text)
    for part in (
        "unknown key compare.outt; did you mean compare.out?",
        "tasks.data of number 1 must be given, got none",
        "unknown key tasks.dat; did you mean tasks.data?",
        "candidates must have names of their own, got 'one' more than once",
        'candidate "ONE": train.steps must be the same for all candidates, got 3; write it outside of [[candidates]]',
        'candidate "ONE": unknown key mixture.temprature; did you mean mixture.temperature?',
    ):
        assert part in said, said


def test_a_fault_of_the_common_tables_is_told_once_and_of_no_candidate(tmp_path: Path) -> None:
    said = fault(tmp_path, SPEC.replace("learning_rate", "learning_rat"))
    assert said.count("learning_rat;") == 1
    assert "candidate" not in said


@pytest.mark.parametrize(
    ("kind", "own", "said"),
    [
        ("data", {"job": {"model": "x", "data": "d"}}, "job.model must be the same for all candidates, got 'x'"),
        ("data", {"job": {"data": "d"}, "run": {"seed": 3}}, "run.seed must be the same for all candidates, got 3"),
        ("data", {}, "job.data must be given, got none; name it, or list data.sources"),
        ("data", {"data": "d.jsonl"}, "data must be written as in a RUN.toml, got data = 'd.jsonl'; write job.data = 'd.jsonl'"),
        ("data", {"job": {"data": "d"}, "data": {"sources": [{"path": "a"}]}}, "data.sources must be left out where job.data is given"),
        ("data", {"job": {"data": "d"}, "data": {"colums": {"query": "q"}}}, "unknown key data.colums.query"),
        ("data", {"data": {"sources": [{"pth": "a"}]}}, "data.sources.path must be given, got none"),
        ("data", {"job": {"data": "d"}, "mixture": {"cap": 0}}, "mixture.cap must be > 0, got 0"),
        ("data", {"job": {"data": 3}}, "job.data must be text (in quotes), got 3"),
        ("backbones", {"model": "x"}, "model must be written as in a RUN.toml, got model = 'x'; write job.model = 'x'"),
        ("backbones", {"job": {"data": "d"}}, "job.data must be the same for all candidates, got 'd'"),
        ("backbones", {"train": {"batch_size": 8}}, "train.batch_size must be the same for all candidates, got 8"),
        ("backbones", {"train": {"method": {"rank": 8}}}, "train.method.rank belongs to lora; kind is full"),
        ("backbones", {"job": {"out": "o"}}, "job.out must be the same for all candidates, got 'o'"),
    ],
)
def test_a_candidate_that_is_wrong_is_named_with_what_is_wrong(kind: str, own: dict[str, Any], said: str) -> None:
    common = {"job": {"model": "m"}} if kind == "data" else {"job": {"model": "m", "data": "d"}}
    with pytest.raises(ConfigError) as caught:
        candidates({"name": "it", **own}, kind=kind, **common)
    assert f'candidate "it": {said}' in str(caught.value)


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", " a", 'a"b', "a\\b", "a\nb", "x" * 61, ""])
def test_a_name_that_is_no_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="candidates.name( of number 1)? must be"):
        candidates({"name": name, "job": {"data": "d"}})


def test_a_common_setting_that_every_candidate_overrides_is_refused() -> None:
    both = [{"name": name, "job": {"data": name}, "data": {"split": name}} for name in "ab"]
    with pytest.raises(ConfigError, match="data.split has no effect where every candidate has its own; leave it out"):
        candidates(*both, data={"split": "train"})
    assert (
        candidates(both[0], {"name": "b", "job": {"data": "b"}}, data={"split": "train"})
        .training(candidates(both[0]).candidates[0])
        .data.split
        == "a"
    )


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"seeds": [1, 1]}, "compare.seeds must be a list that names each seed once, got .1, 1.;"),
        ({"seeds": []}, "compare.seeds must be a list that is not empty"),
        ({"seeds": [-1]}, "compare.seeds must be >= 0"),
        ({"speed_rounds": 5}, "unknown key compare.speed_rounds"),
    ],
)
def test_what_compare_itself_may_not_say(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked(CompareDataSettings, {"compare": section})


def test_a_split_of_a_corpus_needs_a_corpus() -> None:
    with pytest.raises(ConfigError, match="corpus_split has no effect without"):
        checked(CompareBackbonesSettings, {"tasks": [{"data": "d", "corpus_split": "s"}]})


def test_tables_are_merged_and_everything_else_replaced() -> None:
    below, above = {"a": {"x": 1, "y": [1, 2]}, "b": 3}, {"a": {"y": [3]}, "b": {"z": 1}}
    assert laid_over(below, above) == {"a": {"x": 1, "y": [3]}, "b": {"z": 1}}
    assert below == {"a": {"x": 1, "y": [1, 2]}, "b": 3}


def test_settings_of_both_kinds_stand_without_a_file() -> None:
    for name, kind in COMPARISONS.items():
        assert (kind().kind, kind().compare.seeds, kind().candidates) == (name, (0, 1, 2), ())
