"""Input of an in-batch loss: embedded pairs, further negatives, and which candidates are excluded as
negatives (Moiseev et al. 2023).

Letters in shapes: p pairs, n shared negatives, h own negatives of each query, e embedding width, g width of
the guide; r and c rows and columns of a tile.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from adiabat.losses.log_denominator import Block, Excluded

Tower = Literal["query", "positive"]
ROUNDING = 32
"""Rounding difference, in units in the last place, allowed between two sums of the same products in another
order."""

FEW_ANSWERS = 64
"""Maximum number of answers per query for which comparing each with all candidates is faster than a
lookup."""

OTHER: dict[Tower, Tower] = {"query": "positive", "positive": "query"}


@dataclass(frozen=True, slots=True)
class Guide:
    """A second set of embeddings, from another model or from the trained model without gradient, that
    excludes likely positives.

    A candidate ``y`` of row ``x_i`` is excluded if ``g(x_i) . g(y) >= g(q_i) . g(p_i) - margin``, or ``-
    margin |g(q_i) . g(p_i)|`` if relative. Scores that equal the threshold up to rounding are excluded, so a
    text that repeats the positive always is.

    Attributes:
        query: Query embeddings of the guide, of unit length for cosine.
        positive: Embedding ``i`` belongs to query ``i``.
        shared: Parallel to `Pairs.shared`; None if there are none.
        own: Parallel to `Pairs.own`; None if there are none.
        margin: Required distance of a negative below the positive, dimensionless.
        relative: Whether the margin is a share of the positive's score.

    Reference:
        Solatorio 2024 (GISTEmbed); Moreira et al. 2024 (NV-Retriever) for the margins.
    """

    query: Float[Tensor, "p g"]
    positive: Float[Tensor, "p g"]
    shared: Float[Tensor, "n g"] | None = None
    own: Float[Tensor, "p h g"] | None = None
    margin: float = 0.0
    relative: bool = False

    def thresholds(self) -> Float[Tensor, " p"]:
        """Score from which a candidate of each pair is excluded, lowered by a rounding margin for equal
        scores.

        Returns:
            One score per pair.
        """
        scores = (self.query * self.positive).sum(dim=1)
        # Scores are near 1 for unit vectors: the 1 makes the tolerance absolute there, and the score makes it
        # relative elsewhere.
        sizes = scores.abs()
        rounding = ROUNDING * torch.finfo(scores.dtype).eps * (1.0 + sizes)
        margins = self.margin * sizes if self.relative else self.margin
        return scores - margins - rounding


@dataclass(frozen=True, slots=True)
class Pairs:
    """Embeddings of one batch.

    Attributes:
        query: Query embeddings, already scaled for the comparison (`unit` for cosine).
        positive: Row ``i`` answers query ``i``.
        shared: Negatives that every query is compared with.
        own: Negatives that only their own query is compared with.
        rows: Pairs over which the loss is averaged; other pairs, such as those of other processes, are only
            candidates.
        query_keys: Equal for equal query texts; None treats all as different.
        positive_keys: Equal for equal positive texts.
        answer_keys: Keys of all known answers of each query, including its own positive, padded by
            repetition; None uses the positives of pairs with the same query.
        shared_keys: Keys of `shared`, comparable with `positive_keys`.
        own_keys: Keys of `own`.
        known: True if a document (positives first, then `shared`) is a known answer to a query of `rows`; for
            losses that only compare queries with documents.
        guide: Excludes candidates that it scores as likely positives.
        scores: A teacher's scores of each pair's positive and then of its own negatives, in any unit.
    """

    query: Float[Tensor, "p e"]
    positive: Float[Tensor, "p e"]
    shared: Float[Tensor, "n e"] | None = None
    own: Float[Tensor, "p h e"] | None = None
    rows: slice = field(default_factory=partial(slice, None))
    query_keys: Int[Tensor, " p"] | None = None
    positive_keys: Int[Tensor, " p"] | None = None
    answer_keys: Int[Tensor, "p m"] | None = None
    shared_keys: Int[Tensor, " n"] | None = None
    own_keys: Int[Tensor, "p h"] | None = None
    known: Bool[Tensor, "b p_and_n"] | None = None
    guide: Guide | None = None
    scores: Float[Tensor, "p h_and_one"] | None = None

    def __post_init__(self) -> None:
        _check_lengths(self)
        # In half precision, a sum over thousands of candidates keeps only three digits.
        if self.query.dtype in (torch.bfloat16, torch.float16):
            raise ValueError(
                f"embeddings must be float32 or float64, got {self.query.dtype}; convert them with .float()"
            )

    def unit(self) -> "Pairs":
        """The same batch with embeddings of unit length, so that dot products are cosines.

        Returns:
            The scaled batch; a zero row stays zero.
        """
        return self._of_all(unit_rows)

    def first_numbers(self, width: int) -> "Pairs":
        """The same batch with embeddings cut to their first `width` dimensions.

        Args:
            width: Number of dimensions to keep, > 0.

        Returns:
            The narrower batch, not rescaled.

        Raises:
            ValueError: If embeddings have fewer dimensions.

        Reference:
            Kusupati et al. 2022 (Matryoshka).
        """
        if not 0 < width <= self.query.shape[1]:
            raise ValueError(
                f"width must be between 1 and {self.query.shape[1]}, the width of the embeddings, got {width}"
            )

        def cut(embeddings: Tensor) -> Tensor:
            return embeddings[..., :width]

        return self._of_all(cut)

    def _of_all(self, change: Callable[[Tensor], Tensor]) -> "Pairs":
        """The same batch with all of its embeddings changed."""
        shared = None if self.shared is None else change(self.shared)
        own = None if self.own is None else change(self.own)
        return replace(self, query=change(self.query), positive=change(self.positive), shared=shared, own=own)

    def block(self, of: Tower, against: Tower) -> Block:
        """One side of every pair as candidates for one side of the pairs in `rows`.

        A pair is not a negative of itself, nor of pairs with the same query or whose positive answers the
        same query.

        Args:
            of: Side of the rows.
            against: Side of the candidates.

        Returns:
            The candidates with their exclusions.

        Raises:
            ValueError: If `known` is set, which does not cover these sides.
        """
        masks = [self._same_pair()]
        if self.guide:
            rows, candidates = getattr(self.guide, of), getattr(self.guide, against)
            masks.append(self._too_good(rows, candidates))
        if self.known is not None:
            if (of, against) != ("query", "positive"):
                raise ValueError(
                    "known must be left out of a loss that compares more than queries "
                    "with documents; give keys instead"
                )
            masks.append(_window(self.known[:, : len(self.positive)]))
        candidates = getattr(self, against)
        return Block(candidates, _any_of(masks))

    def shared_block(self) -> Block:
        """The shared negatives as candidates for the queries in `rows`.

        Returns:
            The candidates with their exclusions.

        Raises:
            ValueError: If the guide has no embeddings for them.
        """
        assert self.shared is not None
        masks = []
        if self.shared_keys is not None:
            answers = self._answers()[self.rows]
            masks.append(_among(answers, self.shared_keys))
        if self.guide:
            if self.guide.shared is None:
                raise ValueError(
                    "guide must have embeddings of the shared negatives, got none; "
                    "embed them with the guide too"
                )
            masks.append(self._too_good(self.guide.query, self.guide.shared))
        if self.known is not None:
            masks.append(_window(self.known[:, len(self.positive) :]))
        return Block(self.shared, _any_of(masks) if masks else self._none)

    def own_excluded(self) -> Bool[Tensor, "b h"]:
        """Own negatives that are known answers of their query, or excluded by the guide.

        Returns:
            True for excluded negatives.

        Raises:
            ValueError: If the guide has no embeddings for them.
        """
        assert self.own is not None
        negatives = self.own[self.rows]
        answers = torch.zeros(negatives.shape[:2], dtype=torch.bool, device=negatives.device)
        if self.own_keys is not None:
            # Each negative's key beside the keys of all answers of its query.
            keys = self.own_keys[self.rows].unsqueeze(-1)
            known = self._answers()[self.rows].unsqueeze(1)
            answers = (keys == known).any(dim=-1)
        if self.guide is None:
            return answers
        if self.guide.own is None:
            raise ValueError(
                "guide must have embeddings of each query's own negatives, got "
                "none; embed them with the guide too"
            )
        query = self.guide.query[self.rows].unsqueeze(1)
        scores = (query * self.guide.own[self.rows]).sum(dim=-1)
        thresholds = self.guide.thresholds()[self.rows]
        # A candidate is excluded by known answers or by the guide.
        return answers | (scores >= thresholds[:, None])

    def _same_pair(self) -> Excluded:
        numbers = torch.arange(len(self.query), device=self.query.device)
        masks = [_equal(numbers[self.rows], numbers)]
        if self.query_keys is not None:
            masks.append(_equal(self.query_keys[self.rows], self.query_keys))
        # Both ways: i answers j's query, or j answers i's. Either would punish the model for a right answer.
        if self.positive_keys is not None:
            answers = self._answers()
            masks.append(_among(answers[self.rows], self.positive_keys))
            answered = _among(answers, self.positive_keys[self.rows])
            masks.append(_transposed(answered))
        return _any_of(masks)

    def _answers(self) -> Int[Tensor, "p m"]:
        """Keys of all known answers of each pair's query, including those of pairs with the same query,
        padded by repetition.
        """
        if self.answer_keys is not None:
            return self.answer_keys
        if self.positive_keys is None:
            raise ValueError(
                "positive_keys must be given beside keys of negatives, got none; give both or neither"
            )
        if self.query_keys is None:
            return self.positive_keys[:, None]
        # Pairs are sorted by query; row i reads the positives of its query's run, repeated up to the length
        # of the longest run.
        _, query = torch.unique(self.query_keys, return_inverse=True)
        order = torch.argsort(query, stable=True)
        counts = torch.bincount(query)
        first = torch.cumsum(counts, dim=0) - counts
        longest = int(counts.max())
        columns = torch.arange(longest, device=query.device) % counts[query, None]
        places = first[query, None] + columns
        return self.positive_keys[order[places]]

    def _too_good(self, left: Float[Tensor, "p g"], right: Float[Tensor, "n g"]) -> Excluded:
        assert self.guide is not None
        # The threshold is the guide's score of the pair, for candidates of either side.
        rows = left[self.rows]
        thresholds = self.guide.thresholds()[self.rows]

        def too_good(r: slice, c: slice) -> Bool[Tensor, "r c"]:
            scores = rows[r] @ right[c].T
            return scores >= thresholds[r, None]

        return too_good

    def _none(self, r: slice, c: slice) -> Bool[Tensor, "r c"]:
        assert self.shared is not None
        rows = self.query[self.rows][r]
        candidates = self.shared[c]
        return torch.zeros(len(rows), len(candidates), dtype=torch.bool, device=candidates.device)


def unit_rows(embeddings: Float[Tensor, "*rows e"]) -> Float[Tensor, "*rows e"]:
    """Scale rows to length 1; no other function does.

    Args:
        embeddings: Embeddings of any length.

    Returns:
        The scaled rows; a row of zeros stays zero, so that its cosine with anything is 0.
    """
    # torch divides by max(length, 1e-12), so zero rows stay zero, with a finite gradient.
    return functional.normalize(embeddings, dim=-1)


def _equal(left: Int[Tensor, " b"], right: Int[Tensor, " n"]) -> Excluded:
    def equal(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        return left[r, None] == right[c]

    return equal


def _among(answers: Int[Tensor, "b m"], keys: Int[Tensor, " n"]) -> Excluded:
    """True if a candidate's key is one of the row's answers."""
    count, width = answers.shape
    # Comparisons cost b x n x m; the look-up b x n x log(b m), and a sort.
    if width <= FEW_ANSWERS:
        return _any_of([_equal(column, keys) for column in answers.T])
    # Each (row, key) is one number; those of the answers are looked up in order, whose cost hardly grows with
    # how many there are.
    everything = torch.cat([answers.flatten(), keys])
    distinct, inverse = torch.unique(everything, return_inverse=True)
    of_answers, numbers = inverse[: answers.numel()], inverse[answers.numel() :]
    rows = torch.arange(count, device=keys.device) * len(distinct)
    pairs = rows[:, None] + of_answers.view(count, width)
    known = torch.sort(pairs.flatten()).values

    def among(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        targets = rows[r, None] + numbers[c]
        # A target beyond the last pair would be looked up past the end.
        positions = torch.searchsorted(known, targets).clamp_(max=len(known) - 1)
        same: Tensor = known[positions] == targets
        return same

    return among


def _transposed(excluded: Excluded) -> Excluded:
    def transposed(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        return excluded(c, r).T

    return transposed


def _window(mask: Bool[Tensor, "b m"]) -> Excluded:
    def window(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        return mask[r, c]

    return window


def _any_of(masks: list[Excluded]) -> Excluded:
    def joined(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        # Made tile by tile, so that no b x n mask is ever held beside the scores.
        excluded = masks[0](r, c)
        for mask in masks[1:]:
            excluded = excluded | mask(r, c)
        return excluded

    return joined


def _check_lengths(pairs: Pairs) -> None:
    """Raise ValueError if the parts of a batch have different sizes; torch would broadcast them silently."""
    count = len(pairs.query)
    shared = 0 if pairs.shared is None else len(pairs.shared)
    rows = len(range(count)[pairs.rows])
    lengths = {"positive": count, "own": count, "shared_keys": shared, "known": rows}
    for name in ("query_keys", "positive_keys", "answer_keys", "own_keys", "scores"):
        lengths[name] = count
    faults = []
    for name, length in lengths.items():
        values = getattr(pairs, name)
        if values is not None and len(values) != length:
            faults.append(f"{name} must have {length} rows, got {len(values)}")
    if not rows:
        faults.append(f"rows must name at least one pair, got {pairs.rows} of {count}")
    if pairs.known is not None and pairs.known.shape[1] != count + shared:
        faults.append(
            f"known must have a column for each of {count + shared} documents, got {pairs.known.shape[1]}"
        )
    own = 0 if pairs.own is None else pairs.own.shape[1]
    if pairs.scores is not None and pairs.scores.shape[1] != 1 + own:
        faults.append(
            f"scores must have a column for the positive and each of {own} own negatives, "
            f"got {pairs.scores.shape[1]}"
        )
    if faults:
        raise ValueError("; ".join(faults))
