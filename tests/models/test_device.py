"""Names of devices, the peak of memory, and bfloat16 only where the device has it and vectors stay as they
were.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Float

from adiabat.core.errors import ConfigError
from adiabat.models import device as device_module
from adiabat.models.device import (
    MINIMUM_COSINE,
    PROBE,
    Precision,
    device_name,
    device_of,
    emulation_note,
    minimum_cosine,
    peak_memory,
    reset_peak_memory,
    settled_precision,
)
from tests.refused import one_line
from tests.tiny import KINDS, Kind, tiny_encoder


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    assert device_of("auto") == torch.device("cuda")
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("cuda") == torch.device("cuda")
    assert device_of("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize(
    "name",
    ["gpu", "0", "", "CPU", "cuda:-1", "cuda:x", "meta", "mps", "cpu:3", "cpu:0", "cuda:1000", "cuda:1 "],
)
def test_any_other_name_is_refused(name: str) -> None:
    with one_line(ConfigError, "run.device", "auto, cpu, cuda or cuda:N", f"got {name!r}"):
        device_of(name)


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_refused(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, count)
    with one_line(ConfigError, "run.device", "of this machine", f"got '{name}'", f"{count} GPUs"):
        device_of(name)


@pytest.mark.parametrize(("count", "told"), [(1, "1 thread"), (2, "2 threads")])
def test_a_cpu_is_told_with_its_threads(monkeypatch: pytest.MonkeyPatch, count: int, told: str) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    assert device_name(torch.device("cpu")) == f"CPU {platform.machine()}, {told}"


CPU = torch.device("cpu")
MUCH, PIECE = 300_000_000, 30_000


def test_what_is_held_for_a_while_is_seen() -> None:
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    held = np.ones(MUCH, dtype=np.uint8)
    assert peak_memory(CPU) - before > 0.9 * MUCH
    del held
    assert peak_memory(CPU) - before > 0.9 * MUCH


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets the mark begin anew")
def test_what_was_held_before_is_forgotten() -> None:
    held = np.ones(MUCH, dtype=np.uint8)
    high = peak_memory(CPU)
    del held
    reset_peak_memory(CPU)
    assert high - peak_memory(CPU) > 0.8 * MUCH


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the GNU C library alone gives back on demand"
)
def test_what_an_allocator_keeps_free_is_not_counted() -> None:
    # Pieces that come from the heap, with one at its end that stays: the heap cannot shrink of itself.
    pieces = [np.ones(PIECE, dtype=np.uint8) for _ in range(MUCH // PIECE)]
    last = np.ones(PIECE, dtype=np.uint8)
    del pieces
    high = peak_memory(CPU)
    reset_peak_memory(CPU)
    assert high - peak_memory(CPU) > 0.8 * MUCH
    assert last.all()


@pytest.fixture(autouse=True)
def _every_text_settles_a_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "PROBE", PROBE)


def with_native_bf16(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr(device_module, "native_bf16", lambda device: native)


def rotated(angle: float) -> Float[np.ndarray, "n e"]:
    return np.tile(np.array([[np.cos(angle), np.sin(angle)]], dtype=np.float32), (len(PROBE), 1))


def test_minimum_cosine_is_the_worst_row_worked_by_hand() -> None:
    one = np.array([[1.0, 0.0], [3.0, 4.0]], dtype=np.float32)
    other = np.array([[2.0, 0.0], [4.0, 3.0]], dtype=np.float32)
    assert minimum_cosine(one, other) == pytest.approx(24 / 25)


def test_bf16_where_it_is_emulated_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, False)
    assert emulation_note(CPU, "bf16", setting="store.precision").startswith(
        "store.precision = bf16 is only emulated on this cpu device"
    )
    assert emulation_note(CPU, "fp32") == emulation_note(CPU, "auto") == ""
    with_native_bf16(monkeypatch, True)
    assert emulation_note(CPU, "bf16") == ""


@pytest.mark.parametrize(
    ("native", "vectors", "chosen", "asked"),
    [
        (True, rotated(np.arccos(0.99995)), "bf16", ["fp32", "bf16"]),
        (True, rotated(np.arccos(0.9998)), "fp32", ["fp32", "bf16"]),
        (True, np.full_like(rotated(0.0), np.nan), "fp32", ["fp32", "bf16"]),
        (False, rotated(0.0), "fp32", []),
    ],
    ids=["harmless", "harmful", "NaN", "emulated"],
)
def test_bf16_is_chosen_where_it_is_native_and_harmless(
    native: bool,
    vectors: np.ndarray,
    chosen: Precision,
    asked: list[Precision],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_native_bf16(monkeypatch, native)
    tried: list[Precision] = []

    def encode(texts: Sequence[str], precision: Precision) -> np.ndarray:
        assert tuple(texts) == PROBE
        tried.append(precision)
        return vectors if precision == "bf16" else rotated(0.0)

    assert (settled_precision(encode, CPU), tried) == (chosen, asked)


@pytest.mark.parametrize("kind", KINDS)
def test_auto_keeps_the_promised_cosine(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    encoder = tiny_encoder(kind)
    whole, half, chosen = (
        encoder.encode(PROBE, side="document", precision=precision) for precision in ("fp32", "bf16", "auto")
    )
    assert half.dtype == np.float32
    assert not np.array_equal(whole, half)
    assert minimum_cosine(whole, half) > 0.99
    assert minimum_cosine(whole, chosen) >= MINIMUM_COSINE


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
    # Found out once per device.
    monkeypatch.setattr("adiabat.models.encoder.settled_precision", lambda *_: pytest.fail("asked again"))
    assert encoder.settle("auto") == "fp32"


def test_a_model_of_nan_settles_on_float32_and_shows_its_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    with_native_bf16(monkeypatch, True)
    encoder = tiny_encoder()
    with torch.no_grad():
        next(encoder.backbone.parameters()).fill_(float("nan"))
    assert encoder.settle("auto") == "fp32"
    assert np.isnan(encoder.encode(["a"], side="query")).all()


def test_failing_in_bfloat16_settles_on_float32_and_lack_of_memory_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_native_bf16(monkeypatch, True)

    def failing(words: str) -> Callable[[Sequence[str], Precision], np.ndarray]:
        def encode(texts: Sequence[str], precision: Precision) -> np.ndarray:
            if precision == "bf16":
                raise RuntimeError(words)
            return np.ones((len(texts), 2), dtype=np.float32)

        return encode

    assert (
        settled_precision(failing("value cannot be converted to type c10::BFloat16 without overflow"), CPU)
        == "fp32"
    )
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        settled_precision(failing("DefaultCPUAllocator: can't allocate memory"), CPU)


def test_free_memory_of_a_cpu_is_what_the_system_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, physical = torch.device("cpu"), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < device_module.free_memory(cpu) <= physical
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 900 kB\nMemAvailable:   12 kB\n")
    monkeypatch.setattr(device_module, "_MEMORY", told)
    assert device_module.free_memory(cpu) == 12 * 1024
    told.unlink()
    assert device_module.free_memory(cpu) == physical // 2
