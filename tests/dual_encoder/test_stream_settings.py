"""What a stream takes for settings, and what it cannot do: told in one line each, before anything is read."""

from typing import Any

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError

STREAM: dict[str, Any] = {"stream": True, "validation": "held.jsonl"}
WHERE = "where data.stream is true"


def settings(**tables: dict[str, Any]) -> TrainSettings:
    return checked(
        TrainSettings, {**tables, "data": {**STREAM, **tables.get("data", {})}, "train": {"steps": 10, **tables.get("train", {})}}
    )


def test_a_stream_has_windows_of_their_usual_size() -> None:
    assert settings().data.window == 131_072
    assert not TrainSettings().data.stream


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"data": {"corpus": "corpus.jsonl"}}, f"data.corpus must be left out {WHERE}: examples must hold their texts"),
        ({"data": {"sources": [{"path": "a"}, {"path": "b", "corpus": "c"}]}}, "data.sources.corpus of number 2 must be left out"),
        (
            {"towers": {"kind": "asymmetric", "frozen": "document", "store": "stored"}},
            f"towers.store must be left out {WHERE}: examples must hold",
        ),
        ({"data": {"sources": [{"path": "a"}, {"path": "b"}]}}, f'mixture.rule must be equal or weights {WHERE}, .* got "proportional"'),
        (
            {"data": {"sources": [{"path": "a"}, {"path": "b"}]}, "mixture": {"rule": "temperature"}},
            f'mixture.rule must be equal or weights {WHERE}, .* got "temperature"',
        ),
        ({"mixture": {"cap": 10}}, f"mixture.cap must be left out {WHERE}, since sizes are not known, got 10"),
        ({"train": {"schedule": "exponential"}}, f'train.schedule must go by steps {WHERE}, got "exponential"'),
        ({"data": {"window": 50}}, "data.window must be at least train.batch_size = 64, got 50; raise it"),
        ({"train": {"epochs": 2.0}}, "train.epochs has no effect with train.steps = 10"),
        ({"data": {"max_validation": 5}}, "data.max_validation has no effect with data.validation = 'held.jsonl'"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**tables)


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as fault:
        checked(TrainSettings, {"data": {"stream": True}})
    assert f"train.steps must be given {WHERE}, got none; set it" in str(fault.value)
    assert f"data.validation must be given {WHERE}, got none; set it" in str(fault.value)


def test_a_window_without_a_stream_has_no_effect() -> None:
    with pytest.raises(ConfigError, match="data.window has no effect with data.stream = false"):
        checked(TrainSettings, {"data": {"window": 1_000}})


@pytest.mark.parametrize("exhausted", ["drop", "cycle", "stop"])
@pytest.mark.parametrize("rule", ["equal", "weights"])
def test_mixtures_that_need_no_sizes_are_taken(rule: str, exhausted: str) -> None:
    sources = [{"path": "a"}, {"path": "b"}]
    assert settings(data={"sources": sources}, mixture={"rule": rule, "exhausted": exhausted}).mixture.rule == rule
