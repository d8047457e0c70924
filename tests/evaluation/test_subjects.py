"""Who is measured: faults in the list of models, told before anything is loaded."""

import builtins
import sys

import pytest

from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import ModelSection
from adiabat.core.errors import ConfigError
from adiabat.evaluation.measured_models import resolve_models
from adiabat.models.towers import DualEncoder


def never(name: str, section: EncoderSection) -> DualEncoder:
    raise AssertionError(f"{name} was loaded")


def told(*names: str, sections: tuple[ModelSection, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_models(sections, names, EncoderSection(), never)
    return str(caught.value)


def test_every_fault_is_told_at_once() -> None:
    twice = ModelSection(name="a", model="m1", runs=("m2", "m2", "m3"))
    message = told("bm25:klingon", "bm25:englsh", sections=(twice,))
    assert "models.runs of a must differ, got m2 2 times; name each once: counted twice, it narrows the interval" in message
    assert "bm25:klingon: the language of stems must be one that Snowball knows, got klingon; choose one of" in message
    assert "bm25:englsh: the language of stems must be one that Snowball knows, got englsh; did you mean english?" in message


def test_a_run_that_is_the_model_itself_is_counted_twice_too() -> None:
    assert "models.runs of a must differ, got m1 2 times" in told(sections=(ModelSection(name="a", model="m1", runs=("m1",)),))


def test_stems_without_their_library_are_told_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "Stemmer", raising=False)
    usual = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "Stemmer":
            raise ImportError(name)
        return usual(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert "install it with: pip install 'adiabat[stemming]'" in told("bm25:english")
    # Words as they stand need none.
    assert len(resolve_models((), ("bm25",), EncoderSection(), never)) == 1


def test_models_that_differ_are_kept_in_order_with_their_runs() -> None:
    sections = (ModelSection(name="a", model="m1", runs=("m2",)), ModelSection(name="b", model="m1"))
    found = resolve_models(sections, ("bm25:english", "m1"), EncoderSection(), never)
    assert [[(one.name, one.model) for one in runs] for runs in found] == [
        [("a", "m1"), ("a", "m2")],
        [("b", "m1")],
        [("bm25:english", "bm25:english")],
        [("m1", "m1")],
    ]
