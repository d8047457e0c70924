"""Names of devices."""

import platform

import pytest
import torch

from adiabat.core.errors import ConfigError
from adiabat.models.device import device_name, device_of


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)
    assert device_of("auto") == torch.device("cpu")


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 1)
    assert device_of("auto") == torch.device("cuda")


def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    assert device_of("cpu") == torch.device("cpu")
    assert device_of("cuda") == torch.device("cuda")
    assert device_of("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("name", ["gpu", "0", "", "CPU", "cuda:-1", "cuda:x", "meta", "mps", "cpu:3", "cpu:0", "cuda:1000", "cuda:1 "])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}"):
        device_of(name)


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_refused(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, count)
    with pytest.raises(ConfigError, match=f"run.device must be a device of this machine, got '{name}' where there are {count} GPUs"):
        device_of(name)


@pytest.mark.parametrize(("count", "told"), [(1, "1 thread"), (2, "2 threads")])
def test_a_cpu_is_called_by_its_architecture_and_threads(monkeypatch: pytest.MonkeyPatch, count: int, told: str) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    assert device_name(torch.device("cpu")) == f"CPU {platform.machine()}, {told}"


def test_a_gpu_is_called_by_its_product_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Fast One {device.index}")
    assert device_name(torch.device("cuda", 3)) == "Fast One 3"
