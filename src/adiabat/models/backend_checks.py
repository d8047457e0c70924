"""Checks of what encodes texts, before torch is loaded."""

from adiabat.core.errors import ConfigError, require_packages

PACKAGES = ("openvino", "nncf")
"""Packages of the extra `openvino`."""


def require_openvino(device: str, *, purpose: str) -> None:
    """Refuse OpenVINO where it is not installed, or a GPU is asked for.

    Args:
        device: ``run.device``.
        purpose: What needs it, for the message.
    """
    require_packages(PACKAGES, extra="openvino", purpose=purpose)
    if device.startswith("cuda"):
        raise ConfigError(
            f"run.device must be auto or cpu for {purpose}, since OpenVINO runs on the processor here, got "
            f"{device}; leave it out"
        )
