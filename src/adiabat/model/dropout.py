"""Dropout from a generator of each thread's own, so that threads that train side by side draw the same numbers whoever is faster.

Torch's own dropout draws from one generator for the whole process. Where a thread draws from a generator of its own (`drawing_from`),
what replaces dropout here (`own_dropout`, `attention`) does so too; elsewhere it draws as torch does.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_HERE = threading.local()


def own_generator() -> torch.Generator | None:
    """What this thread draws from.

    Returns:
        The generator; None where it is torch's.
    """
    found: torch.Generator | None = getattr(_HERE, "generator", None)
    return found


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let this thread draw from a generator while the block lasts.

    Args:
        generator: On the CPU; None for torch's.
    """
    before = own_generator()
    _HERE.generator = generator
    try:
        yield
    finally:
        _HERE.generator = before


def dropped(states: Float[Tensor, "*axes"], share: float) -> Float[Tensor, "*axes"]:
    """Set a share of numbers to zero at random, and scale the others up so that the mean stays."""
    generator = own_generator()
    if generator is None:
        return functional.dropout(states, share)
    if share >= 1:
        return states * 0.0
    kept = torch.empty_like(states).bernoulli_(1.0 - share, generator=generator)
    return states * kept.div_(1.0 - share)


class OwnDropout(nn.Dropout):
    """`torch.nn.Dropout` that draws from this thread's own generator, where it has one."""

    def forward(self, states: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop where the module is in training mode."""
        return dropped(states, self.p) if self.training and self.p else states


def own_dropout(module: nn.Module) -> None:
    """Replace every `torch.nn.Dropout` inside a module."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if type(child) is nn.Dropout:
                setattr(part, name, OwnDropout(child.p).train(child.training))


def attention(
    query: Float[Tensor, "1 h n d"],
    key: Float[Tensor, "1 k n d"],
    value: Float[Tensor, "1 k n d"],
    *,
    scaling: float,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "1 n h d"]:
    """Scaled dot-product attention of one text with dropout on its weights.

    ``softmax(s Q K^T) V``; heads of keys and values serve ``h / k`` heads of queries each.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(groups, dim=1) if groups > 1 else states for states in (key, value))
    scores = (query * scaling) @ key.transpose(2, 3)
    if causal:
        count = scores.shape[-1]
        later = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = dropped(torch.softmax(scores, dim=-1), dropout)
    return (weights @ value).transpose(1, 2)
