"""Which program embeds a corpus: the fastest whose vectors keep their cosine."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from adiabat.core.errors import ConfigError, MissingDependencyError, ModelError
from adiabat.models import backend_choice
from adiabat.models.backend_checks import require_openvino
from adiabat.models.backend_choice import Candidate, candidates, fastest, may_gain, require_graph
from adiabat.models.towers import DualEncoder
from tests.models.static_models import static_encoder
from tests.refused import one_line
from tests.tiny import tiny_dual


class Clock:
    """Time that passes only while a fake model encodes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeModel:
    """Vectors along one axis, turned by an angle, that take some seconds."""

    def __init__(self, clock: Clock, seconds: Sequence[float], angle: float = 0.0) -> None:
        self.clock, self.seconds, self.angle = clock, list(seconds), angle

    def encode(self, texts: Sequence[str], *, side: str, precision: str) -> np.ndarray:
        if len(texts) == 3:
            self.clock.now += self.seconds.pop(0)
        return np.tile([np.cos(self.angle), np.sin(self.angle)], (len(texts), 1))


def chosen(*ways: tuple[str, Sequence[float], float]) -> tuple[str, list[str]]:
    """The name of the fastest candidate, and what was noted."""
    clock, notes = Clock(), list[str]()
    found: list[Any] = [
        Candidate(name, FakeModel(clock, seconds, angle), "auto")  # type: ignore[arg-type]
        for name, seconds, angle in ways
    ]
    return fastest(found, ["a", "b", "c"], notes.append, clock).name, notes


# The cosine of this angle is 0.99985.
TOO_FAR = 0.0173


def test_the_shortest_time_of_two_rounds_decides() -> None:
    name, notes = chosen(("torch", [3, 2], 0), ("openvino fp32", [9, 1.5], 0))
    assert name == "openvino fp32"
    assert notes == [
        "documents are encoded by openvino fp32 (documents/s on a sample: torch 1.5, openvino fp32 2.0)"
    ]


def test_vectors_that_lose_their_cosine_are_not_timed() -> None:
    name, notes = chosen(("torch", [3, 3], 0), ("openvino fp32", [2, 2], 0.01), ("x", [1], TOO_FAR))
    assert name == "openvino fp32"
    assert "x " not in notes[0]


def test_torch_stays_where_nothing_is_faster() -> None:
    assert chosen(("torch", [1, 1], 0), ("openvino fp32", [1, 1], 0))[0] == "torch"


@pytest.mark.parametrize(
    ("change", "gains"),
    [
        (None, True),
        ("too few texts", False),
        ("a static model", False),
        ("a GPU", False),
        ("no package", False),
    ],
)
def test_only_a_large_corpus_on_a_cpu_is_measured(
    change: str | None, gains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, distinct = tiny_dual(), backend_choice.WORTH_MEASURING
    if change == "too few texts":
        distinct -= 1
    elif change == "a static model":
        static = static_encoder()
        model = DualEncoder(static, static)
    elif change == "a GPU":
        model.document.to("meta")
    elif change == "no package":
        monkeypatch.setattr(backend_choice, "find_spec", lambda name: None)
    assert may_gain(model, distinct) is gains


@pytest.mark.parametrize(
    ("precision", "native", "names"),
    [
        ("auto", True, ["torch", "openvino fp32", "openvino bf16"]),
        ("auto", False, ["torch", "openvino fp32"]),
        ("fp32", True, ["torch", "openvino fp32"]),
        ("bf16", True, ["torch", "openvino bf16"]),
    ],
)
def test_bfloat16_is_tried_where_it_is_native_or_asked_for(
    precision: Any, native: bool, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def converted(model: DualEncoder, side: str, precisions: Sequence[Any]) -> list[Candidate]:
        return [Candidate(f"openvino {each}", model, each) for each in precisions]

    monkeypatch.setattr(backend_choice, "by_openvino", converted)
    monkeypatch.setattr(backend_choice, "native_bf16", lambda device: native)
    assert [each.name for each in candidates(tiny_dual(), precision, print)] == names


def test_a_model_without_a_graph_stays_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> list[Candidate]:
        raise ModelError("odd layers")

    notes: list[str] = []
    monkeypatch.setattr(backend_choice, "by_openvino", refuse)
    assert [each.name for each in candidates(tiny_dual(), "fp32", notes.append)] == ["torch"]
    assert notes == ["documents are encoded by torch: odd layers"]


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a static model": (lambda: require_graph(static_encoder()), ModelError, "static model"),
    "a GPU": (lambda: require_openvino("cuda:1", purpose="x"), ConfigError, "cuda:1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, fact = REFUSED[name]
    with one_line(error, fact):
        call()


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adiabat.models.backend_checks.PACKAGES", ("nothing_of_this_name",))
    with one_line(MissingDependencyError, "pip install 'adiabat[openvino]'", "store.backend"):
        require_openvino("cpu", purpose="store.backend = openvino")
