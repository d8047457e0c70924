"""What holds a tuned tower near its start, beyond a small rate: a pull on weights, a rehearsal of vectors, and a way back at the end.

None of it is in the source, which has the rate and freezing alone; `adiabat sweep` compares them all (LOG.md).
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, optim
from torch.nn import functional

from adiabat.adiabatic.drift_guard import PROBE_TOKENS, Guard
from adiabat.adiabatic.probes import ProbeSet
from adiabat.core.errors import ConfigError
from adiabat.data.batch_sampler import BatchSampler, ShuffledBatches
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.encoder import Encoder
from adiabat.models.towers import interpolated, merged_tower
from adiabat.training.passes import Group, Passes

HALVINGS = 10
"""Of the way back: the share that is kept is known to a thousandth."""


def pull_to_start(optimizer: optim.Optimizer, strength: float) -> None:
    """Add ``strength (w - w_0)`` to the gradient of every weight before each step, ``w_0`` being where it stands now."""
    start = {weights: weights.detach().clone() for group in optimizer.param_groups for weights in group["params"]}

    def pull(stepping: optim.Optimizer, args: Any, kwargs: Any) -> None:
        for weights, before in start.items():
            if weights.grad is not None:
                weights.grad.add_(weights.detach() - before, alpha=strength)

    optimizer.register_step_pre_hook(pull)


def require_apart(taught: ProbeSet, probes: ProbeSet) -> None:
    """Refuse to measure drift on what is rehearsed: it would tell of these texts alone."""
    if shared := len({*taught.texts} & {*probes.texts}):
        raise ConfigError(
            f"rehearsal.texts must be others than the probes that drift is measured on, got {shared:,} that are in {probes.name} too; "
            "take other texts for one of them"
        )


@dataclass(frozen=True, slots=True)
class RehearsedTexts:
    """Texts whose vectors are to stay, and where the untuned tower puts them.

    Attributes:
        tokens: Of the texts, as queries.
        vectors: By the untuned tower.
    """

    tokens: TokenTable
    vectors: Float[Tensor, "n e"]

    @classmethod
    def of(cls, texts: ProbeSet, start: Encoder) -> Self:
        """Embed the texts."""
        tokens = TokenTable.of(start, texts.texts, side="query")
        return cls(tokens, embed_all(start, tokens, token_budget=PROBE_TOKENS))


class Rehearsal:
    """A share of the loss that grows as texts move from where the untuned tower puts them."""

    def __init__(self, texts: RehearsedTexts, weight: float, texts_per_step: int, *, seed: int) -> None:
        """Nothing is computed yet."""
        self._texts, self._weight = texts, weight
        self.sampler: BatchSampler = ShuffledBatches(len(texts.tokens), texts_per_step, seed=seed)

    def group(self, step: int) -> Group:
        """The texts of a step."""
        return Group(self._texts.tokens, self.sampler.rows(step))

    def loss(self, passes: Passes, step: int) -> Tensor:
        """``weight mean(1 - cos(q, q_0))`` over the texts of a step."""
        group = self.group(step)
        now = passes.embed(group.table, group.rows)
        before = self._texts.vectors[torch.from_numpy(group.rows)].to(now.device)
        return self._weight * (1 - functional.cosine_similarity(now, before)).mean()


@dataclass(frozen=True, slots=True)
class Softened:
    """A tower on its way back.

    Attributes:
        tower: With ``w_0 + share (w - w_0)`` for weights.
        share: Of the way from the start that is kept, in [0, 1].
        drift: Of the probes, by the guarded measure.
    """

    tower: Encoder
    share: float
    drift: float


def soften(tower: Encoder, start: Encoder, guard: Guard) -> Softened:
    """Take a tuned tower so far back towards its start that its drift is within the limit.

    The largest share is looked for by bisection, as if drift grew with it; what is returned was looked at, and is inside.
    """
    limit = guard.most
    if limit is None:
        raise ValueError("the guard must have a limit, got none")
    tuned = merged_tower(tower).eval()
    if (unsoftened := _at(tuned, start, guard, 1.0)).drift <= limit:
        return unsoftened
    inside, beyond = _at(tuned, start, guard, 0.0), 1.0
    for _ in range(HALVINGS):
        middle = _at(tuned, start, guard, (inside.share + beyond) / 2)
        inside, beyond = (middle, beyond) if middle.drift <= limit else (inside, middle.share)
    return inside


def _at(tuned: Encoder, start: Encoder, guard: Guard, share: float) -> Softened:
    tower = interpolated(tuned, start, share)
    return Softened(tower, share, guard.look(tower).measures[guard.section.measure])
