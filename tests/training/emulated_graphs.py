"""CUDA graphs on a CPU: every operation of torch that a function runs is recorded, and repeated on the same
tensors.

As in a CUDA graph, numbers that the host computes are fixed by the recording, results land where they were
recorded, and an operation that would wait for the device is refused.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from adiabat.training.captured_step import RECORDERS

WAITING = frozenset(
    f"aten.{name}"
    for name in (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique_dim",
        "_unique2",
        "unique_consecutive",
        "bincount",
        "equal",
        "repeat_interleave",
        "is_nonzero",
    )
)
"""Operations whose result the host needs, or whose shape depends on values."""

PLACED = frozenset(("aten.index", "aten.index_put", "aten.index_put_", "aten._index_put_impl_"))
"""Operations that wait if an index is a mask."""


class WaitsError(RuntimeError):
    """Raised where CUDA refuses to record."""


class _Recording(TorchDispatchMode):
    """Runs operations, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Callable[..., Any], Any, Any, list[Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        name = str(func).rsplit(".", 1)[0]
        masks = name in PLACED and any(index.dtype == torch.bool for index in args[1] if index is not None)
        if name in WAITING or masks:
            raise WaitsError(f"operation not permitted when stream is capturing: {func}")
        if name == "aten.lift_fresh" and not _in_optimizer():
            raise WaitsError(
                f"operation not permitted when stream is capturing: a tensor of the host's numbers, {args}"
            )
        output = func(*args, **kwargs)
        # A view, or a tensor that was changed, is in place already.
        in_place = any(one.alias_info is not None for one in func._schema.returns)
        self.tape.append((func, args, kwargs, [] if in_place else _tensors(output)))
        return output

    @torch.no_grad()
    def repeat(self) -> None:
        """What replaying a graph does."""
        for func, args, kwargs, recorded in self.tape:
            for result, place in zip(_tensors(func(*args, **kwargs)), recorded, strict=False):
                place.copy_(result)


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


def _in_optimizer() -> bool:
    """Whether an optimizer of torch makes a tensor that it would make only on a CPU."""
    frame: Any = sys._getframe()
    while frame is not None:
        if "torch/optim" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


class EmulatedGraphs:
    """Records on a CPU."""

    recorded: int = 0

    def __init__(self, device: torch.device) -> None:
        del device

    def warm_up(self, work: Callable[[], Tensor]) -> None:
        """Once, so that whatever a step leaves behind is there."""
        work()

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Run once, and return the repetition."""
        EmulatedGraphs.recorded += 1
        recording = _Recording()
        with recording:
            result = work()
        return recording.repeat, result


class Repeats(EmulatedGraphs):
    """Takes the same steps without recording any."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """The function itself."""
        result = work().clone()
        return lambda: result.copy_(work()) and None, result


@contextmanager
def recording(
    recorder: type[EmulatedGraphs] = EmulatedGraphs, *, free_memory: int = 1 << 40
) -> Iterator[type[EmulatedGraphs]]:
    """Within the block, a CPU records steps as a GPU does."""
    capturable = ("cpu", "cuda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RECORDERS, "cpu", recorder)
        patch.setattr(EmulatedGraphs, "recorded", 0)
        patch.setattr("adiabat.store.stored_blocks.free_memory", lambda device: free_memory)
        for module in ("adamax", "adadelta"):
            # Torch deletes the names of these modules.
            patch.setattr(
                sys.modules[f"torch.optim.{module}"],
                "_get_capturable_supported_devices",
                lambda supports_xla=True: capturable,
            )
        # While a stream is recorded, transformers does not ask whether a mask is needed.
        patch.setattr("transformers.utils.import_utils.is_cuda_stream_capturing", lambda: True)
        yield recorder
