"""Input of an in-batch loss: embedded pairs, further negatives, and which candidates are excluded as
negatives (Moiseev et al. 2023).

Letters in shapes: p pairs, n shared negatives, h own negatives of each query, e embedding width, g width of
the guide; r and c rows and columns of a tile.
"""

from dataclasses import dataclass, field, replace
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
        rounding = ROUNDING * torch.finfo(scores.dtype).eps * (1.0 + scores.abs())
        return scores - self.margin * (scores.abs() if self.relative else 1.0) - rounding


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
    """

    query: Float[Tensor, "p e"]
    positive: Float[Tensor, "p e"]
    shared: Float[Tensor, "n e"] | None = None
    own: Float[Tensor, "p h e"] | None = None
    rows: slice = field(default_factory=lambda: slice(None))
    query_keys: Int[Tensor, " p"] | None = None
    positive_keys: Int[Tensor, " p"] | None = None
    answer_keys: Int[Tensor, "p m"] | None = None
    shared_keys: Int[Tensor, " n"] | None = None
    own_keys: Int[Tensor, "p h"] | None = None
    known: Bool[Tensor, "b p_and_n"] | None = None
    guide: Guide | None = None

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
        shared, own = (None if rows is None else unit_rows(rows) for rows in (self.shared, self.own))
        return replace(
            self, query=unit_rows(self.query), positive=unit_rows(self.positive), shared=shared, own=own
        )

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
        shared, own = (None if rows is None else rows[..., :width] for rows in (self.shared, self.own))
        return replace(
            self, query=self.query[:, :width], positive=self.positive[:, :width], shared=shared, own=own
        )

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
            masks.append(self._too_good(getattr(self.guide, of), getattr(self.guide, against)))
        if self.known is not None:
            if (of, against) != ("query", "positive"):
                raise ValueError(
                    "known must be left out of a loss that compares more than queries "
                    "with documents; give keys instead"
                )
            masks.append(_window(self.known[:, : len(self.positive)]))
        return Block(getattr(self, against), _any_of(masks))

    def shared_block(self) -> Block:
        """The shared negatives as candidates for the queries in `rows`.

        Returns:
            The candidates with their exclusions.

        Raises:
            ValueError: If the guide has no embeddings for them.
        """
        assert self.shared is not None
        masks = [_among(self._answers()[self.rows], self.shared_keys)] if self.shared_keys is not None else []
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
        answers = torch.zeros(self.own[self.rows].shape[:2], dtype=torch.bool, device=self.own.device)
        if self.own_keys is not None:
            answers = (self.own_keys[self.rows].unsqueeze(-1) == self._answers()[self.rows].unsqueeze(1)).any(
                dim=-1
            )
        if self.guide is None:
            return answers
        if self.guide.own is None:
            raise ValueError(
                "guide must have embeddings of each query's own negatives, got "
                "none; embed them with the guide too"
            )
        scores = (self.guide.query[self.rows].unsqueeze(1) * self.guide.own[self.rows]).sum(dim=-1)
        # A candidate is excluded by known answers or by the guide.
        return answers | (scores >= self.guide.thresholds()[self.rows, None])

    def _same_pair(self) -> Excluded:
        numbers = torch.arange(len(self.query), device=self.query.device)
        masks = [_equal(key[self.rows], key) for key in (numbers, self.query_keys) if key is not None]
        # Both ways: i answers j's query, or j answers i's. Either would punish the model for a right answer.
        if self.positive_keys is not None:
            answers = self._answers()
            masks += [
                _among(answers[self.rows], self.positive_keys),
                _transposed(_among(answers, self.positive_keys[self.rows])),
            ]
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
        columns = torch.arange(int(counts.max()), device=query.device) % counts[query, None]
        return self.positive_keys[order[first[query, None] + columns]]

    def _too_good(self, left: Float[Tensor, "p g"], right: Float[Tensor, "n g"]) -> Excluded:
        assert self.guide is not None
        # The threshold is the guide's score of the pair, for candidates of either side.
        rows, above = left[self.rows], self.guide.thresholds()[self.rows]
        return lambda r, c: rows[r] @ right[c].T >= above[r, None]

    def _none(self, r: slice, c: slice) -> Bool[Tensor, "r c"]:
        assert self.shared is not None
        shape = len(self.query[self.rows][r]), len(self.shared[c])
        return torch.zeros(shape, dtype=torch.bool, device=self.shared.device)


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
    return lambda r, c: left[r, None] == right[c]


def _among(answers: Int[Tensor, "b m"], keys: Int[Tensor, " n"]) -> Excluded:
    """True if a candidate's key is one of the row's answers."""
    count, width = answers.shape
    # Comparisons cost b x n x m; the look-up b x n x log(b m), and a sort.
    if width <= FEW_ANSWERS:
        return _any_of([_equal(column, keys) for column in answers.T])
    # Each (row, key) is one number; those of the answers are looked up in order, whose cost hardly grows with
    # how many there are.
    distinct, inverse = torch.unique(torch.cat([answers.flatten(), keys]), return_inverse=True)
    rows = torch.arange(count, device=keys.device) * len(distinct)
    known = torch.sort((rows[:, None] + inverse[: count * width].view(count, width)).flatten()).values
    numbers = inverse[count * width :]

    def among(r: slice, c: slice) -> Bool[Tensor, "r c"]:
        targets = rows[r, None] + numbers[c]
        positions = torch.searchsorted(known, targets).clamp_(max=len(known) - 1)
        same: Tensor = known[positions] == targets
        return same

    return among


def _transposed(excluded: Excluded) -> Excluded:
    return lambda r, c: excluded(c, r).T


def _window(mask: Bool[Tensor, "b m"]) -> Excluded:
    return lambda r, c: mask[r, c]


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
    count, shared = len(pairs.query), 0 if pairs.shared is None else len(pairs.shared)
    rows = len(range(count)[pairs.rows])
    parts_of_pairs = ("positive", "own", "query_keys", "positive_keys", "answer_keys", "own_keys")
    lengths = {**dict.fromkeys(parts_of_pairs, count), "shared_keys": shared}
    faults = [
        f"{name} must have {length} rows, got {len(values)}"
        for name, length in {**lengths, "known": rows}.items()
        if (values := getattr(pairs, name)) is not None and len(values) != length
    ]
    if not rows:
        faults.append(f"rows must name at least one pair, got {pairs.rows} of {count}")
    if pairs.known is not None and pairs.known.shape[1] != count + shared:
        faults.append(
            f"known must have a column for each of {count + shared} documents, got {pairs.known.shape[1]}"
        )
    if faults:
        raise ValueError("; ".join(faults))
