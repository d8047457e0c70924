"""Which device a job runs on, by the name a user gives."""

import platform

import torch

from adiabat.errors import ConfigError
from adiabat.model.device_names import require_device_name


def device_of(name: str) -> torch.device:
    """Turn a setting into a device that is there."""
    require_device_name(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"run.device must be a device of this machine, got {name!r} where there are {torch.cuda.device_count()} GPUs")
    return device


def device_name(device: torch.device) -> str:
    """What to call a device in a result."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU {platform.machine()}, {threads} {'thread' if threads == 1 else 'threads'}"
