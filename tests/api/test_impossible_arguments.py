"""Paths that no file can have, and settings that no table can hold."""

from collections.abc import Callable
from typing import Any

import pytest

import adiabat
from adiabat.api.arguments import settings_of
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import AdiabatError, ConfigError


def test_a_path_that_no_file_can_have_is_refused_at_every_door() -> None:
    calls: list[Callable[[], object]] = [
        lambda: adiabat.embed("demo", "corpus\0", "new"),
        lambda: adiabat.embed("demo", "corpus.jsonl", "new\0"),
        lambda: adiabat.load("demo\0"),
        lambda: adiabat.Store.open("store\0"),
        lambda: adiabat.tune("demo", "store\0", "pairs.jsonl", "new"),
        lambda: adiabat.evaluate("demo\0", "store", "pairs.jsonl"),
        lambda: adiabat.search("store\0", "hello", model="demo"),
        lambda: adiabat.compare("first\0", "second"),
        lambda: adiabat.distill_static("demo", "new", vocabulary="words\0"),
        lambda: adiabat.sweep("sweep\0", out="new"),
    ]
    for call in calls:
        with pytest.raises(AdiabatError, match="a path without a zero byte|text without control characters"):
            call()
    for call in (
        lambda: adiabat.embed("demo", "", "new"),
        lambda: adiabat.tune("demo", "store", "pairs.jsonl", ""),
    ):
        with pytest.raises(ConfigError, match="must be a path, got an empty text"):
            call()


def test_settings_nested_3000_deep_are_one_line() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"a": deep}
    for given in ({"settings": deep}, {"tune": deep}):
        with pytest.raises(ConfigError, match="settings must nest at most a few tables"):
            settings_of(
                TuneSettings,
                given.get("settings"),
                {"tune": given.get("tune")},
                section="tune",
                function="tune",
            )
