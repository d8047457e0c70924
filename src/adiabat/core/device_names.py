"""Names of devices, which can be judged before torch is loaded."""

import re

from adiabat.core.errors import ConfigError

_NAME = re.compile(r"auto|cpu|cuda(:\d{1,2})?")


def require_device_name(name: str) -> None:
    """Refuse what names no device; whether there is such a device, `adiabat.models.device.device_of` says."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"run.device must be auto, cpu, cuda or cuda:N, got {name!r}")
