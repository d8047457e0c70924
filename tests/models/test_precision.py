"""bfloat16 only where the device has it and the vectors stay what they were."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from jaxtyping import Float

from adiabat.models import device as precision
from adiabat.models.device import MINIMUM_COSINE, PROBE, Precision, autocast, emulation_note, minimum_cosine, native_bf16, settled_precision
from tests.tiny import KINDS, Kind, tiny_encoder

CPU = torch.device("cpu")


def with_native_bf16(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(precision, "native_bf16", lambda device: native)


def rotated(angle: float) -> Float[np.ndarray, "n e"]:
    return np.tile(np.array([[np.cos(angle), np.sin(angle)]], dtype=np.float32), (len(PROBE), 1))


def encoder_turned_by(angle: float) -> "Recorder":
    return Recorder({"fp32": rotated(0.0), "bf16": rotated(angle)})


class Recorder:
    """Gives fixed vectors per precision and keeps what it was asked for."""

    def __init__(self, vectors: dict[Precision, Float[np.ndarray, "n e"]]) -> None:
        self.vectors = vectors
        self.asked: list[Precision] = []

    def __call__(self, texts: Sequence[str], one: Precision) -> Float[np.ndarray, "n e"]:
        assert tuple(texts) == PROBE
        self.asked.append(one)
        return self.vectors[one]


def test_minimum_cosine_is_the_worst_row_worked_by_hand() -> None:
    one = np.array([[1.0, 0.0], [3.0, 4.0]], dtype=np.float32)
    other = np.array([[2.0, 0.0], [4.0, 3.0]], dtype=np.float32)
    assert minimum_cosine(one, other) == pytest.approx(24 / 25)


def test_minimum_cosine_ignores_the_vectors_lengths() -> None:
    one = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    other = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    assert minimum_cosine(one * np.float32(8), other) == pytest.approx(minimum_cosine(one, other))


def test_bf16_where_it_is_emulated_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, False)
    told = "store.precision = bf16 is only emulated on this cpu device, which takes many times as long as fp32"
    assert emulation_note(CPU, "bf16", setting="store.precision") == told
    assert emulation_note(CPU, "fp32") == emulation_note(CPU, "auto") == ""
    with_native_bf16(monkeypatch, True)
    assert emulation_note(CPU, "bf16") == ""


@pytest.mark.parametrize("bad", [np.nan, 0.0])
def test_a_row_of_nan_or_zero_gives_nan(bad: float) -> None:
    one = np.ones((2, 3), dtype=np.float32)
    other = one.copy()
    other[1] = bad
    assert np.isnan(minimum_cosine(one, other))


def test_harmless_bf16_is_chosen_where_it_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    assert settled_precision(encoder_turned_by(np.arccos(0.99995)), CPU) == "bf16"


def test_harmful_bf16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    assert settled_precision(encoder_turned_by(np.arccos(0.9998)), CPU) == "fp32"


def test_bf16_that_gives_nan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    broken = Recorder({"fp32": rotated(0.0), "bf16": np.full_like(rotated(0.0), np.nan)})
    assert settled_precision(broken, CPU) == "fp32"


def test_emulated_bf16_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, False)
    recorder = encoder_turned_by(0.0)
    assert settled_precision(recorder, CPU) == "fp32"
    assert recorder.asked == []


def test_devices_without_a_known_bf16_unit_count_as_without() -> None:
    assert not native_bf16(torch.device("meta"))


def test_autocast_switches_on_for_bf16_alone() -> None:
    with autocast(CPU, "fp32"):
        assert not torch.is_autocast_enabled("cpu")
    with autocast(CPU, "bf16"):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_vectors_of_a_tiny_model_stay_near_float32(kind: Kind) -> None:
    encoder = tiny_encoder(kind)
    whole = encoder.encode(PROBE, side="document", precision="fp32")
    half = encoder.encode(PROBE, side="document", precision="bf16")
    assert half.dtype == np.float32
    assert not np.array_equal(whole, half)
    assert minimum_cosine(whole, half) > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_auto_keeps_the_promised_cosine(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    encoder = tiny_encoder(kind)
    chosen = encoder.encode(PROBE, side="document", precision="auto")
    assert minimum_cosine(encoder.encode(PROBE, side="document", precision="fp32"), chosen) >= MINIMUM_COSINE


def test_auto_falls_back_to_float32_for_weights_that_bf16_spoils(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    encoder = tiny_encoder("bert")
    with torch.no_grad():
        # Sharp attention turns rounding into other choices of token.
        for name, weights in encoder.backbone.named_parameters():
            if "query" in name or "key" in name:
                weights.mul_(100)
    assert encoder.settle("auto") == "fp32"
    chosen = encoder.encode(PROBE, side="query", precision="auto")
    np.testing.assert_array_equal(chosen, encoder.encode(PROBE, side="query", precision="fp32"))


def test_a_stated_precision_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, False)
    encoder = tiny_encoder()
    assert (encoder.settle("fp32"), encoder.settle("bf16"), encoder.settle("auto")) == ("fp32", "bf16", "fp32")


def test_auto_is_found_out_once_per_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, False)
    encoder = tiny_encoder()
    assert encoder.settle("auto") == "fp32"
    with_native_bf16(monkeypatch, True)
    assert encoder.settle("auto") == "fp32"


def test_a_model_of_nan_settles_on_float32_and_shows_its_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    encoder = tiny_encoder()
    with torch.no_grad():
        next(encoder.backbone.parameters()).fill_(float("nan"))
    assert encoder.settle("auto") == "fp32"
    assert np.isnan(encoder.encode(["a"], side="query")).all()


def test_an_encoder_that_fails_in_bfloat16_settles_on_float32_and_one_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)

    def failing(words: str) -> Callable[[Sequence[str], Precision], np.ndarray]:
        def encode(texts: Sequence[str], precision: Precision) -> np.ndarray:
            if precision == "bf16":
                raise RuntimeError(words)
            return np.ones((len(texts), 2), dtype=np.float32)

        return encode

    assert settled_precision(failing("value cannot be converted to type c10::BFloat16 without overflow"), CPU) == "fp32"
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        settled_precision(failing("DefaultCPUAllocator: can't allocate memory"), CPU)
