"""Modules and public functions by their former names, which scripts of that time import."""

import importlib

import pytest

import adiabat
from adiabat.core import former_names


@pytest.mark.parametrize("room", ["adiabat.measure", "adiabat.store", "adiabat.report", "adiabat.errors"])
def test_every_former_name_of_a_room_is_a_module_that_is_there(room: str) -> None:
    moved = {old: new for old, new in former_names._moved().items() if old == room or old.startswith(f"{room}.")}
    assert moved
    for old, new in moved.items():
        present = importlib.import_module(new)
        name = next(name for name, value in vars(present).items() if getattr(value, "__module__", "") == new)
        assert getattr(importlib.import_module(old), name) is getattr(present, name)


def test_functions_and_settings_are_found_where_they_were() -> None:
    from adiabat import api, config  # type: ignore[attr-defined]
    from adiabat.config.tuning import TuneSettings

    assert api.load is adiabat.load
    assert config.TuneSettings is TuneSettings
    with pytest.raises(AttributeError, match="has no attribute 'none'"):
        _ = api.none


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("adiabat.measure.never")
