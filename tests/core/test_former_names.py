"""Former module names that scripts outside the repository import."""

import importlib

import pytest

from adiabat.core.former_names import FORMER


@pytest.mark.parametrize(("former", "present"), sorted(FORMER.items()))
def test_a_former_module_gives_the_names_of_the_present_one(former: str, present: str) -> None:
    module = importlib.import_module(present)
    name = next(name for name, value in vars(module).items() if getattr(value, "__module__", "") == present)
    assert getattr(importlib.import_module(former), name) is getattr(module, name)


def test_a_renamed_function_is_found_by_its_former_name() -> None:
    former = importlib.import_module("adiabat.store.lexical")
    assert former.build_lexical is importlib.import_module("adiabat.store.bm25").build_bm25


def test_other_modules_of_a_former_room_are_missing() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("adiabat.model.never")
