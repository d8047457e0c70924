"""Random numbers at one moment, so that a pass can be repeated with the same dropout."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from adiabat.model.dropout import drawing_from, own_generator


@dataclass(frozen=True, slots=True)
class RandomState:
    """Where generators stand: this thread's own (`adiabat.model.dropout`), or torch's.

    Attributes:
        device: Whose generator counts beside the CPU's.
        cpu: State of the CPU's generator, or of the thread's own.
        gpu: State of the device's generator; None where the device is the CPU.
        own: Whether `cpu` is of the thread's own.
    """

    device: torch.device
    cpu: Tensor
    gpu: Tensor | None
    own: bool = False

    @classmethod
    def now(cls, device: torch.device) -> Self:
        """Note the state."""
        if (generator := own_generator()) is not None:
            return cls(device, generator.get_state(), None, own=True)
        return cls(device, torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self) -> None:
        """Go back to it."""
        if self.own:
            generator = own_generator()
            if generator is None:
                raise RuntimeError("a state of a thread's own generator must be restored where there is one, got none")
            generator.set_state(self.cpu)
            return
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Go back to it while the block lasts; afterwards the generators stand where they stood before."""
        # Torch's generator is one for all threads: what draws from its own must not touch it.
        apart = drawing_from(torch.Generator()) if self.own else torch.random.fork_rng([self.device] if self.gpu is not None else [])
        with apart:
            self.restore()
            yield


def draws(module: nn.Module) -> bool:
    """Whether a pass may draw random numbers."""
    return any(part.training for part in module.modules())
