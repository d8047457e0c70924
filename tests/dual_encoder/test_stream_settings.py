"""What a stream takes for settings, and what it cannot do: told in one line each, before anything is read."""

from typing import Any

import pytest

from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError

STREAM: dict[str, Any] = {"stream": True, "validation": "held.jsonl"}
WHERE = "with data.stream"


def settings(**tables: dict[str, Any]) -> TrainSettings:
    return checked(
        TrainSettings, {**tables, "data": {**STREAM, **tables.get("data", {})}, "train": {"steps": 10, **tables.get("train", {})}}
    )


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
        ({"data": {"stream": {"shard_size": 50}}}, "data.stream.shard_size must be at least train.batch_size = 64, got 50; raise it"),
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


@pytest.mark.parametrize("exhausted", ["drop", "cycle", "stop"])
@pytest.mark.parametrize("rule", ["equal", "weights"])
def test_mixtures_that_need_no_sizes_are_taken(rule: str, exhausted: str) -> None:
    sources = [{"path": "a"}, {"path": "b"}]
    assert settings(data={"sources": sources}, mixture={"rule": rule, "exhausted": exhausted}).mixture.rule.kind == rule
