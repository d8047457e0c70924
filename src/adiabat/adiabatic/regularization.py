"""Regularization that keeps a tuned tower near its start: a drift limit, L2 towards the start, rehearsal, and
softening.

Vasilyev et al. 2024 only use the rate and freezing; `adiabat sweep` compares all of these (LOG.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, optim
from torch.nn import functional

from adiabat.adiabatic.drift import MEASURES, Reading, drift_of, limits_of
from adiabat.adiabatic.probes import ProbeSet
from adiabat.config.tuning import GuardSection
from adiabat.core.errors import ConfigError, DivergedError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.batch_sampler import BatchSampler, ShuffledBatches
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder, interpolated, merged_tower
from adiabat.store.scoring import CPU
from adiabat.store.search import score_rows, search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store
from adiabat.training.passes import Group, Passes

STAYS = 1e-5
"""Maximum rounding difference between vectors of unit length."""


def noise_of(start: Reading, otherwise: Reading) -> dict[str, float]:
    """Drift of the untuned tower when only the final punctuation of the probes changes.

    A probe whose vector does not change, for example because its end lies beyond the token limit, is left
    out.

    Returns:
        Measure to its mean over the probes whose vectors changed; 0 if there are none.
    """
    moved = (np.abs(_unit(start.vectors) - _unit(otherwise.vectors)) > STAYS).any(axis=1)
    if not moved.any():
        return dict.fromkeys(MEASURES, 0.0)
    return drift_of(start.of(moved), otherwise.of(moved)).means


def _unit(vectors: Float32[np.ndarray, "n e"]) -> Float32[np.ndarray, "n e"]:
    """Vectors of unit length; the least length keeps a zero vector finite."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12))


def read_tower(
    model: DualEncoder,
    probes: ProbeSet,
    store: Store,
    *,
    depth: int,
    start: Reading | None = None,
    watch: Watch = SILENT,
) -> Reading:
    """Embed the probes and search the store with them.

    Args:
        start: Reading of the untuned tower, whose documents are scored; None if this is the untuned tower.
    """
    vectors = embed_texts(model, probes.texts, side="query", name=f"probes ({probes.name})", watch=watch)
    return reading_of(
        vectors, store, depth=depth, similarity=model.ranks_by, device=model.query.device, start=start
    )


def reading_of(
    vectors: Float32[np.ndarray, "n e"],
    store: Store,
    *,
    depth: int,
    similarity: Similarity,
    device: torch.device = CPU,
    start: Reading | None = None,
) -> Reading:
    """Search the store with embedded probes."""
    hits = search(store, vectors, min(depth, store.count), similarity=similarity, device=device)
    rows = hits.rows.astype(np.int64)
    scores = hits.scores if start is None else score_rows(store, vectors, start.rows, similarity=similarity)
    return Reading(vectors=vectors, rows=rows, scores=scores.astype(np.float32))


PROBE_TOKENS = 4_096
"""Tokens per forward pass over the probes."""


@dataclass(frozen=True, slots=True)
class Look:
    """Result of a drift measurement.

    Attributes:
        measures: Measures of drift, over all probes.
        outside: Why the tower must not be the result; None if it may.
    """

    measures: Mapping[str, float] = field(default_factory=dict)
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Measures the drift of a tower.

    Attributes:
        section: Settings of the measure and its limit.
        tokens: Tokens of the probes.
        store: Store to search.
        start: Reading of the untuned tower.
        similarity: Similarity to rank documents by.
        limit: Maximum drift; None only measures.
        noise: Measure to the drift of the untuned tower on probes with changed punctuation; empty if the
            limit is not derived from it.
        digests: SHA-256 of texts and store, by their names in the configuration of a job.
    """

    section: GuardSection
    tokens: TokenTable
    store: Store
    start: Reading
    similarity: Similarity = "cosine"
    limit: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    measures: ClassVar[Sequence[str]] = MEASURES
    """Measures of drift in a validation."""

    @classmethod
    def of(cls, section: GuardSection, probes: ProbeSet, model: DualEncoder, store: Store) -> Self:
        """Measure the untuned tower."""
        tokens = TokenTable.of(model.query, probes.texts, side="query")
        read = partial(_read, model.query, store=store, depth=section.depth, similarity=model.ranks_by)
        start = read(tokens)
        digests = {"probes": probes.sha256, "probed_vectors": store.manifest.sha256}
        noise: Mapping[str, float] = {}
        if section.limit == "noise":
            otherwise = TokenTable.of(model.query, probes.otherwise().texts, side="query")
            noise = noise_of(start, read(otherwise, start=start))
            limit: float | None = _limit(noise, section.measure)
        else:
            limit = section.limit
        return cls(section, tokens, store, start, model.ranks_by, limit, noise, digests)

    @property
    def probes(self) -> int:
        """Number of texts."""
        return len(self.tokens)

    def look(self, tower: Encoder) -> Look:
        """Drift of a tower."""
        now = _read(
            tower,
            self.tokens,
            store=self.store,
            depth=self.section.depth,
            similarity=self.similarity,
            start=self.start,
        )
        measures = drift_of(self.start, now).means
        name, limit = self.section.measure, self.limit
        if limit is None or measures[name] <= limit:
            return Look(measures)
        outside = (
            f"the drift of the probes ({name}) is {measures[name]:.3g}, beyond guard.limit = {limit:.3g}"
        )
        return Look(measures, outside)


def _limit(noise: Mapping[str, float], measure: str) -> float:
    limit = limits_of(noise)[measure]
    if not limit > 0:
        raise ConfigError(
            f"guard.limit must be a number, got noise, since {measure} is unchanged "
            "when probes end differently: the model "
            "ignores how a text ends, or the store is too small for its order to change; "
            "run once without a limit, look at the drift, and "
            "set a number"
        )
    return limit


def _read(
    tower: Encoder,
    tokens: TokenTable,
    *,
    store: Store,
    depth: int,
    similarity: Similarity,
    start: Reading | None = None,
) -> Reading:
    # Not `Encoder.encode`, whose threads would change the last digits of the surrounding training.
    with torch.no_grad():
        vectors = embed_all(tower, tokens, token_budget=PROBE_TOKENS).cpu().numpy()
    if not np.isfinite(vectors).all():
        raise DivergedError(
            "the vectors of the probes must be finite numbers, got NaN or infinity", "lower the learning rate"
        )
    return reading_of(vectors, store, depth=depth, similarity=similarity, device=tower.device, start=start)


HALVINGS = 10
"""Bisection steps of softening, which determine the share to a thousandth."""


def l2_to_start(optimizer: optim.Optimizer, strength: float) -> None:
    """Before each step, add ``strength (w - w_0)`` to the gradient of every weight, where ``w_0`` is its
    present value.
    """
    start: dict[Tensor, Tensor] = {}
    # Copies, since the optimizer changes its weights in place.
    for group in optimizer.param_groups:
        start |= {weights: weights.detach().clone() for weights in group["params"]}

    def pull(stepping: optim.Optimizer, args: Any, kwargs: Any) -> None:
        for weights, before in start.items():
            if weights.grad is not None:
                weights.grad.add_(weights.detach() - before, alpha=strength)

    optimizer.register_step_pre_hook(pull)


def require_apart(taught: ProbeSet, probes: ProbeSet) -> None:
    """Refuse to measure drift on rehearsed texts, whose drift is not representative."""
    if shared := len({*taught.texts} & {*probes.texts}):
        raise ConfigError(
            f"rehearsal.texts must differ from the probes of drift, got {shared:,} "
            f"that are also in {probes.name}; "
            "use other texts for one of them"
        )


def at_start(texts: ProbeSet, start: Encoder) -> tuple[TokenTable, Float[Tensor, "n e"]]:
    """Tokens of the texts as queries, and their vectors by the untuned tower."""
    tokens = TokenTable.of(start, texts.texts, side="query")
    return tokens, embed_all(start, tokens, token_budget=PROBE_TOKENS)


class Rehearsal:
    """A loss term that grows as texts move away from their vectors by the untuned tower."""

    def __init__(
        self,
        tokens: TokenTable,
        vectors: Float[Tensor, "n e"],
        weight: float,
        texts_per_step: int,
        *,
        seed: int,
    ) -> None:
        """Start without vectors."""
        self.tokens, self.vectors, self._weight = tokens, vectors, weight
        self.sampler: BatchSampler = ShuffledBatches(len(tokens), texts_per_step, seed=seed)

    def group(self, step: int) -> Group:
        """The texts of a step."""
        return Group(self.tokens, self.sampler.rows(step))

    def loss(self, passes: Passes, step: int) -> Tensor:
        """``weight mean(1 - cos(q, q_0))`` over the texts of a step."""
        group = self.group(step)
        now = passes.embed(group.table, group.rows)
        return self.pull(now, self.vectors[torch.from_numpy(group.rows)].to(now.device))

    def pull(self, now: Float[Tensor, "b e"], before: Float[Tensor, "b e"]) -> Tensor:
        """The loss of texts by their present vectors and those of the untuned tower."""
        return self._weight * (1 - functional.cosine_similarity(now, before)).mean()


@dataclass(frozen=True, slots=True)
class Softened:
    """A tower interpolated between its start and its tuned weights.

    Attributes:
        tower: Tower with weights ``w_0 + share (w - w_0)``.
        share: Share of the tuned change that is kept, in [0, 1].
        drift: Drift of the probes by the guarded measure.
    """

    tower: Encoder
    share: float
    drift: float


def soften(tower: Encoder, start: Encoder, guard: Guard) -> Softened:
    """Move a tuned tower towards its start until its drift is within the limit.

    Bisection finds the largest share, assuming that drift grows with it; the drift of the returned tower was
    measured and is within the limit.
    """
    limit = guard.limit
    if limit is None:
        raise ValueError("the guard must have a limit, got none")
    tuned = merged_tower(tower).eval()
    whole = _at(tuned, start, guard, 1.0)
    if whole.drift <= limit:
        return whole
    inside = _at(tuned, start, guard, 0.0)
    beyond = 1.0
    for _ in range(HALVINGS):
        middle = _at(tuned, start, guard, (inside.share + beyond) / 2)
        if middle.drift <= limit:
            inside = middle
        else:
            beyond = middle.share
    return inside


def _at(tuned: Encoder, start: Encoder, guard: Guard, share: float) -> Softened:
    # The drift is measured, not interpolated.
    tower = interpolated(tuned, start, share)
    return Softened(tower, share, guard.look(tower).measures[guard.section.measure])
