"""Similarity scores that are independent of how they are computed.

A matrix product in floating point depends on the order of its additions, and so on block sizes, batch sizes
and the machine: a document would not always tie with its own copy. Here integers define the score of a query
and a row. Each vector is scaled by a power of two and rounded to integers of at most ``g`` bits, with ``2 g +
log2(E) <= 53``. Every product and every sum of products is then an integer that float64 holds exactly, so any
order of addition gives the same result, bit for bit. For E = 384, g is 22: a component is rounded by at most
2^-23 of its vector's largest one, and the score of unit vectors is off by about 2e-8, less than the rounding
of float32 (6e-8).

The exact score is computed only where it matters. An ordinary float32 product comes first, with a bound on
its distance from the exact score; search and counts compute the exact score of the pairs that the bound
leaves undecided.

Blocks of documents lie on a CPU or a GPU. The bound holds for every order of additions (Higham 2002, section
3.1), so also for a GPU's products, as long as their factors are not rounded to TF32 or bfloat16
(`plain_arithmetic`). Integer sums are equal on every device, and what follows (a square root, a quotient,
float32) is rounded in one way by IEEE 754: a GPU changes no hit, no score and no tie.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf, log2
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor

from adiabat.core.errors import StoreError, several
from adiabat.models.embedding_head import Similarity
from adiabat.store.manifest import LONGEST, SHORTEST

SIMILARITIES: tuple[Similarity, ...] = ("cosine", "distance", "dot")

PAIR_CHUNK = 2048
"""Number of pairs scored at a time, which bounds the memory of the gathered vectors."""
DEVICE_NUMBERS = 1 << 24
"""Numbers of the vectors gathered at a time on a GPU, which needs many: about 0.5 GB with their integers and
products."""

CPU = torch.device("cpu")

QueryArray = Float[np.ndarray, "q e"]
"""Vectors of queries."""

PairRows = Int64[np.ndarray, " p"]
"""Numbers of queries or documents, one for each pair of them."""

PairScores = Float32[np.ndarray, " p"]
"""Scores of pairs."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Vectors as integers, each times a power of two.

    Attributes:
        units: The integers, in float64.
        exponents: The vector is ``units * 2 ** exponents``.
        squares: Sum of the squared units, exact.
    """

    units: Float64[Tensor, "*n e"]
    exponents: Int64[Tensor, "*n"]
    squares: Float64[Tensor, "*n"]

    @classmethod
    def of(cls, vectors: Float[np.ndarray | Tensor, "*n e"]) -> "FixedPoint":
        """Round vectors to integers on their device: each step is exact, so that all devices agree."""
        given = torch.tensor(vectors) if isinstance(vectors, np.ndarray) else vectors
        units = given.to(torch.float64, copy=True)
        # No order of evaluation changes a maximum, so equal vectors get equal exponents.
        largest = torch.linalg.vector_norm(units, inf, dim=-1)
        exponents = torch.frexp(largest).exponent.long() - _bits(units.shape[-1])
        # In place, because fresh memory for each step takes longer than the step.
        units.mul_(powers(-exponents).unsqueeze(-1)).round_()
        return cls(units, exponents, _products_of_rows(units, units))

    def take(self, rows: PairRows) -> "FixedPoint":
        """A selection of the vectors."""
        index = torch.from_numpy(rows)
        return FixedPoint(
            self.units.index_select(0, index),
            self.exponents.index_select(0, index),
            self.squares.index_select(0, index),
        )


def _products_of_rows(
    units: Float64[Tensor, "... e"], others: Float64[Tensor, "... e"]
) -> Float64[Tensor, "..."]:
    """The product of each vector of integers with the one beside it, exact in any order of addition."""
    return torch.einsum("...e,...e->...", units, others)


def _bits(width: int) -> int:
    """``g`` above: size of the integers of vectors of this width."""
    return (53 - ceil(log2(max(1, width)))) // 2


def powers(exponents: Int64[Tensor, "*any"]) -> Float64[Tensor, "*any"]:
    """Powers of two, by the bits of float64: a device's power function may round."""
    return ((1023 + exponents) << 52).view(torch.float64)


def exact_pairs(query: FixedPoint, document: FixedPoint, similarity: Similarity) -> Float32[Tensor, "..."]:
    """Scores of query ``i`` and document ``i``; a GPU is not waited for."""
    return _scores(_products_of_rows(query.units, document.units), query, document, similarity)


def exact_table(
    query: FixedPoint, document: FixedPoint, similarity: Similarity
) -> Float32[np.ndarray, "q n"]:
    """Scores of every query with every document, equal to those of `exact_pairs`."""
    with plain_arithmetic():
        products = query.units @ document.units.T
    column = FixedPoint(query.units, query.exponents.unsqueeze(1), query.squares.unsqueeze(1))
    return _scores(products, column, document, similarity).numpy()


def row_scores(
    a: Float64[np.ndarray, "n e"],
    b: Float64[np.ndarray, "... n e"],
    similarity: Similarity,
    *,
    squares: Float64[np.ndarray, "... n"] | None = None,
) -> Float64[np.ndarray, "... n"]:
    """Scores of vector ``i`` of one side and vector ``i`` of the other, in float64; higher is closer, 0 if a
    cosine is undefined.

    Sums run in the same order for every pair: equal vectors give equal scores, and a vector has with itself a
    cosine of exactly 1 and a distance of exactly 0. `exact_pairs` gives the float32 scores of search.
    `squares` are products of squared lengths, where known already.
    """
    if similarity == "distance":
        gap = b - a
        return np.asarray(-np.sqrt(np.vecdot(gap, gap)))
    products = np.asarray(np.vecdot(b, a))
    if similarity == "dot":
        return products
    squares = np.vecdot(a, a) * np.vecdot(b, b) if squares is None else squares
    # One square root of the product, not a product of two: for equal vectors this gives the square exactly.
    return np.asarray(products / np.sqrt(np.where(squares == 0, 1.0, squares)))


def _scores(
    products: Float64[Tensor, "..."], query: FixedPoint, document: FixedPoint, similarity: Similarity
) -> Float32[Tensor, "..."]:
    """Scores from exact sums, element by element: no step depends on a neighbour, or on the device.

    With ``u`` and ``v`` the units of a query and a document, and ``a`` and ``b`` their exponents:
    ``cosine = u v / (|u| |v|)``; ``dot = u v 2^(a + b)``;
    ``distance = -sqrt(|u|^2 2^(2 a) + |v|^2 2^(2 b) - u v 2^(a + b + 1))``.
    Sums of integers are exact in any order; divisions and square roots of float64 are rounded in one way
    everywhere. A zero vector has cosine 0 with everything.
    """
    exponents = query.exponents + document.exponents
    if similarity == "cosine":
        lengths = query.squares.sqrt() * document.squares.sqrt()
        scores = products / torch.where(lengths == 0, 1.0, lengths)
    elif similarity == "dot":
        scores = products * powers(exponents)
    else:
        of_query = query.squares * powers(2 * query.exponents)
        of_document = document.squares * powers(2 * document.exponents)
        squared = of_query + of_document - products * powers(exponents + 1)
        scores = -squared.clamp(min=0.0).sqrt()
    # Adding zero turns -0.0 into 0.0.
    return (scores + 0.0).float()


@dataclass(frozen=True)
class Queries:
    """Queries of one search, in the forms needed for scoring documents on a device.

    Each form is computed when it is first asked for, and then kept: a search needs the integers only if quick
    scores leave pairs undecided.
    """

    vectors: Float32[np.ndarray, "q e"]
    similarity: Similarity
    device: torch.device = CPU

    @cached_property
    def exact(self) -> FixedPoint:
        """The integers."""
        return FixedPoint.of(self.vectors)

    @cached_property
    def unscaled(self) -> Float32[Tensor, "q e"]:
        """The vectors, on the device."""
        # Torch takes no arrays that cannot be written.
        return self.on_device(np.require(self.vectors, requirements=("C", "W")))

    @cached_property
    def lengths(self) -> Float64[np.ndarray, " q"]:
        """Euclidean norms."""
        lengths: Float64[np.ndarray, " q"] = np.sqrt(
            np.einsum("qe,qe->q", self.vectors, self.vectors, dtype=np.float64)
        )
        return lengths

    @cached_property
    def squares(self) -> Float32[Tensor, " q"]:
        """Squared norms, on the device."""
        return self.on_device(np.square(self.lengths.astype(np.float32)))

    @cached_property
    def operand(self) -> Float32[Tensor, "q e"]:
        """The factor of the float32 product, on the device: unit vectors for the cosine."""
        if self.similarity != "cosine":
            return self.unscaled
        lengths = np.where(self.lengths == 0, 1.0, self.lengths)
        return self.on_device((self.vectors / lengths[:, None]).astype(np.float32))

    def on_device(self, values: np.ndarray) -> Tensor:
        """Values of queries, or indices, on the device."""
        return torch.from_numpy(values).to(self.device)

    def take(self, rows: slice) -> "Queries":
        """Some of the queries."""
        return Queries(self.vectors[rows], self.similarity, self.device)


@dataclass(frozen=True)
class Block:
    """Consecutive documents, in the forms needed for scoring.

    Attributes:
        start: Row of the first document.
        vectors: Stored vectors, in float32, on the device of the queries.
        lengths: Euclidean norms, to float32 accuracy.
    """

    start: int
    vectors: Float32[Tensor, "b e"]
    lengths: Float32[Tensor, " b"]

    def __len__(self) -> int:
        return len(self.vectors)

    def part(self, rows: slice) -> "Block":
        """Some consecutive documents of the block."""
        return Block(self.start + rows.start, self.vectors[rows], self.lengths[rows])

    @cached_property
    def fixed(self) -> FixedPoint:
        """The integers of all documents."""
        return FixedPoint.of(self.vectors)

    def parts(self, rows: int) -> "Iterator[Block]":
        """The block in parts of so many documents."""
        return map(self.part, pair_slices(len(self), rows))

    def fixed_of(self, rows: PairRows) -> FixedPoint:
        """The integers of some documents of the block; many rows compute and cache all, because other queries
        will need many too.
        """
        many = 4 * len(rows) >= len(self) or "fixed" in vars(self)
        return self.fixed.take(rows) if many else FixedPoint.of(self.vectors[torch.from_numpy(rows)])

    @cached_property
    def divisors(self) -> Float32[Tensor, " b"]:
        """Lengths, with zero vectors set to 1."""
        return torch.where(self.lengths == 0, 1.0, self.lengths)

    @cached_property
    def longest(self) -> float:
        """The greatest length."""
        return float(on_host(self.lengths.max()))

    def approximate(self, queries: Queries) -> tuple[Float32[Tensor, "q b"], Float64[np.ndarray, " q"]]:
        """Quick scores (minus the square for ``distance``), and for each query a bound on their distance from
        the exact ones.

        For a query ``q`` and a document ``d``: ``q d / (|q| |d|)``, ``q d``, or ``2 q d - |d|^2 - |q|^2``,
        which is ``-|q - d|^2``.
        """
        width = self.vectors.shape[1]
        # A float32 product errs by at most E 2^-24 |q| |d|; norms and rounding of the integers add as much
        # again. Doubled for safety.
        relative = (2 * width + 64) * 2.0**-23
        scores = _products(queries.operand, self.vectors)
        if queries.similarity == "cosine":
            scores /= self.divisors
            return scores, np.full(len(scores), relative)
        if queries.similarity == "dot":
            return scores, relative * queries.lengths * self.longest
        scores *= 2
        scores -= self.lengths.square()
        scores -= queries.squares.unsqueeze(1)
        return scores, relative * (queries.lengths + self.longest) ** 2

    def at_least(self, queries: Queries, levels: Float32[np.ndarray, " q"]) -> Bool[np.ndarray, "q b"]:
        """Documents that score at least a query's level (NaN for none), by quick scores, and by exact ones
        where these are undecided.
        """
        scores, error = self.approximate(queries)
        low, high = clear_bounds(levels, error, queries.similarity)
        surely = reach(scores, high)
        query, document = places(reach(scores, low) ^ surely)
        above: Bool[np.ndarray, "q b"] = on_host(surely)
        above[query, document] = self.exact(queries, query, document) >= levels[query]
        return above

    def exact(self, queries: Queries, query: PairRows, document: PairRows) -> PairScores:
        """Exact scores of chosen pairs of a query and a document of the block, by their numbers."""
        if not is_cpu(self.vectors.device):
            return self._exact_on_device(queries, query, document)
        documents, column = np.unique(document, return_inverse=True)
        rows, row = np.unique(query, return_inverse=True)
        fixed = self.fixed_of(documents)
        # If chosen pairs are dense in their table, one matrix product is faster than all its rows.
        if len(rows) * len(documents) < 8 * len(query):
            return exact_table(queries.exact.take(rows), fixed, queries.similarity)[row, column]
        scores = np.empty(len(query), dtype=np.float32)
        for pairs in pair_slices(len(query), PAIR_CHUNK):
            asked = queries.exact.take(query[pairs])
            scores[pairs] = exact_pairs(asked, fixed.take(column[pairs]), queries.similarity)
        return scores

    def _exact_on_device(self, queries: Queries, query: PairRows, document: PairRows) -> PairScores:
        """The same, computed on a device."""
        scores = np.empty(len(query), dtype=np.float32)
        for pairs in pair_slices(len(query), max(1, DEVICE_NUMBERS // self.vectors.shape[1])):
            asked = FixedPoint.of(queries.unscaled.index_select(0, queries.on_device(query[pairs])))
            documents = FixedPoint.of(self.vectors.index_select(0, queries.on_device(document[pairs])))
            scores[pairs] = on_host(exact_pairs(asked, documents, queries.similarity))
        return scores


def scale(scores: Float[np.ndarray, "..."], similarity: Similarity) -> Float64[np.ndarray, "..."]:
    """Scores on the scale of `Block.approximate`: minus the square for a distance; no distance is above
    zero.
    """
    wide = scores.astype(np.float64)
    if similarity == "distance":
        wide = np.where(wide > 0, np.inf, -np.square(wide))
    return wide


def clear_bounds(
    levels: Float[np.ndarray, "..."], error: Float64[np.ndarray, "..."], similarity: Similarity
) -> tuple[Float32[np.ndarray, "..."], Float32[np.ndarray, "..."]]:
    """Quick scores below which a document surely misses a level, and from which it surely reaches it.

    With ``e`` the bound on the error of quick scores, they are the level minus ``e`` and the level plus
    ``e``. Between both the exact score decides.
    """
    thresholds = scale(levels, similarity)
    # Bounds in float32 like the scores, rounded away from the threshold.
    with np.errstate(over="ignore"):
        low = np.nextafter((thresholds - error).astype(np.float32), np.float32(-np.inf))
        high = np.nextafter((thresholds + error).astype(np.float32), np.float32(np.inf))
    return low, high


def pair_slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive parts of a number of pairs."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def is_cpu(device: torch.device) -> bool:
    """Whether numpy computes what has two ways: the products of a block, their comparison, and what is chosen
    by it.
    """
    return device.type == "cpu"


def _products(queries: Float32[Tensor, "q e"], documents: Float32[Tensor, "b e"]) -> Float32[Tensor, "q b"]:
    """Float32 products of every query with every document."""
    if is_cpu(documents.device):
        # numpy's OpenBLAS takes two thirds of the time of torch's MKL on AMD's processors; elsewhere they are
        # alike.
        return torch.from_numpy(queries.numpy() @ documents.numpy().T)
    with plain_arithmetic(documents.device.type):
        return queries @ documents.T


def reach(scores: Float32[Tensor, "q b"], levels: Float32[np.ndarray, " q"]) -> Bool[Tensor, "q b"]:
    """Which scores are at least a query's level."""
    if is_cpu(scores.device):
        # Twice as quick as torch.
        return torch.from_numpy(np.greater_equal(scores.numpy(), levels[:, None]))
    return scores >= torch.from_numpy(levels).to(scores.device).unsqueeze(1)


def places(mask: Bool[Tensor, "..."]) -> tuple[PairRows, ...]:
    """Where a mask is true, as `numpy.nonzero` has it: of a GPU's mask, only these numbers are copied."""
    if is_cpu(mask.device):
        # The flat form is several times quicker to search.
        return np.unravel_index(np.flatnonzero(mask.numpy()), mask.shape)
    return tuple(on_host(mask.nonzero().T))


def on_host(values: Tensor) -> np.ndarray:
    """Values as an array. Here and in `places`, and nowhere else, scoring waits for a GPU."""
    return values.cpu().numpy()


def checked_queries(
    vectors: QueryArray, width: int, similarity: Similarity, device: torch.device = CPU
) -> Queries:
    """Refuse queries that cannot be scored against a store."""
    if similarity not in SIMILARITIES:
        raise StoreError(f"similarity must be cosine, distance or dot, got {similarity}; name one of them")
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise StoreError(
            f"queries must be rows of width {width}, as the store's vectors, got shape "
            f"{vectors.shape}; embed them by the store's model"
        )
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(broken):
        rows = several((f"row {row}" for row in broken), of="queries")
        raise StoreError(
            f"queries must be finite, got NaN or infinity in {rows}; embed them "
            "again, or check whether the model is damaged"
        )
    queries = Queries(vectors.astype(np.float32, copy=False), similarity, device)
    inside = (queries.lengths >= SHORTEST) & (queries.lengths <= LONGEST)
    extreme = np.flatnonzero((queries.lengths != 0) & ~inside)
    if len(extreme):
        rows = several((f"row {row}" for row in extreme), of="queries")
        raise StoreError(
            f"queries must be of length {SHORTEST:g} to {LONGEST:g}, got another in {rows}; "
            "scale them, preferably to unit length"
        )
    return queries


@contextmanager
def plain_arithmetic(device_type: str = "cpu") -> Iterator[None]:
    """Float32 products in full float32, without autocast and regardless of the process's precision for
    training.
    """
    with _full_precision(), torch.autocast(device_type, enabled=False):
        yield


@contextmanager
def _full_precision() -> Iterator[None]:
    """Float32 products of torch in full float32; settings of the process are restored afterwards."""
    try:
        before: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        # The process set `fp32_precision`, which cannot always be told in the words of the older function.
        before = None
    if before == "highest":
        yield
        return
    libraries: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    # Torch has this attribute since 2.9.
    parts = [library for library in libraries if hasattr(library, "fp32_precision")]
    values = [part.fp32_precision for part in parts]
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if before is not None:
            torch.set_float32_matmul_precision(before)
        for part, value in zip(parts, values, strict=True):
            part.fp32_precision = value
