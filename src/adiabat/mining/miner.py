"""Mining for a block of queries: candidates, filters, the judge, the choice."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt64

from adiabat.config.dataset_settings import JudgeSection, MineSection
from adiabat.data.records import Example, is_own_document
from adiabat.mining.candidates import (
    PASSED,
    Candidates,
    CandidateSource,
    Codes,
    Pairs,
    Reason,
    Vectors,
    code_of,
    first_reasons,
    normalised,
    overlaps,
    shingles,
    too_close,
)
from adiabat.mining.mining_queries import Documents, MiningQueries, document_rows

Mask = Bool[np.ndarray, " c"]
"""Whether something holds for each candidate of a query."""

Choice = Literal["ranked", "random"]

BATCH_QUERIES = 32
"""Queries whose candidates' texts are in memory together."""
CACHED_SHINGLES = 1 << 22
"""Shingles of recent texts in memory, 8 bytes each: neighbouring queries often share candidates."""


def query_generator(seed: int, query_id: str, query: str) -> np.random.Generator:
    """Random numbers of one query, independent of other queries and blocks."""
    return np.random.default_rng([seed, query_number(query_id, query)])


def query_number(query_id: str, query: str) -> int:
    """64 bits of a query."""
    digest = hashlib.blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(b"\0" + query.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def in_order_of_choice(
    passed: Int64[np.ndarray, " k"], choice: Choice, generator: np.random.Generator
) -> Int64[np.ndarray, " k"]:
    """The order in which candidates are taken until there are enough."""
    return passed if choice == "ranked" else generator.permutation(passed)


@dataclass(slots=True)
class MinedQuery:
    """A query with its candidates, best first, and what was chosen of them.

    Attributes:
        codes: Reason why each candidate was dropped, or `PASSED`.
        positive_rows: Rows of its own positives; -1 for a text that is not in the corpus.
        chosen: Positions of the mined negatives among the candidates, in the order of choice.
    """

    example: Example
    rows: Int64[np.ndarray, " c"]
    scores: Float32[np.ndarray, " c"]
    texts: list[str]
    codes: Codes
    positive_rows: Int64[np.ndarray, " p"]
    positive_texts: list[str]
    positive_scores: Float32[np.ndarray, " p"]
    chosen: list[int] = field(default_factory=list)
    judged: int = 0
    listed_texts: list[str] = field(default_factory=list)
    listed_scores: Float32[np.ndarray, " l"] = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    @property
    def negatives(self) -> int:
        """Number of listed and mined negatives."""
        return len(self.listed_texts) + len(self.chosen)


@dataclass(slots=True)
class Miner:
    """Mines any of the queries; the judge is a second model, or None."""

    corpus: Documents
    queries: MiningQueries
    source: CandidateSource
    settings: MineSection
    seed: int = 0
    judge: Vectors | None = None
    judge_settings: JudgeSection | None = None
    _shingles: dict[str, UInt64[np.ndarray, " s"]] = field(default_factory=dict)
    _shingle_count: int = 0

    def mine(self, examples: Sequence[Example]) -> Iterator[MinedQuery]:
        """Mine for some queries; the result of each does not depend on the others."""
        candidates = self.source.find(
            [example.query for example in examples],
            self.settings.depth,
            lambda: self._positive_texts(examples),
        )
        for start in range(0, len(examples), BATCH_QUERIES):
            yield from self._mine_batch(examples[start : start + BATCH_QUERIES], candidates, start)

    def _positive_texts(self, examples: Sequence[Example]) -> list[list[str]]:
        if not self.queries.holds_ids:
            return [list(example.positives) for example in examples]
        ids = list(dict.fromkeys(chain.from_iterable(example.positives for example in examples)))
        texts = dict(zip(ids, self.corpus.texts(self.corpus.rows(ids)), strict=True))
        return [[texts[doc_id] for doc_id in example.positives] for example in examples]

    def _mine_batch(
        self, examples: Sequence[Example], candidates: Candidates, start: int
    ) -> list[MinedQuery]:
        answers = [self.queries.known_answers(example) for example in examples]
        rows = candidates.hits.rows[start : start + len(examples)]
        texts = _Texts.of(self.corpus, self.queries.holds_ids, rows, examples, answers)
        batch = [
            self._unfiltered(example, candidates, start + index, texts)
            for index, example in enumerate(examples)
        ]
        _score_known_documents(batch, candidates, start, texts)
        own_rows = self.corpus.rows([example.query_id for example in examples])
        for mined, known, own_row in zip(batch, answers, own_rows.tolist(), strict=True):
            mined.codes = self._codes(mined, known, own_row, texts)
        self._choose(batch)
        return batch

    def _unfiltered(
        self, example: Example, candidates: Candidates, query: int, texts: "_Texts"
    ) -> MinedQuery:
        rows = candidates.hits.rows[query]
        is_row = rows >= 0
        return MinedQuery(
            example=example,
            rows=rows[is_row],
            scores=candidates.hits.scores[query][is_row],
            texts=[texts.of_row[row] for row in rows[is_row].tolist()],
            codes=np.zeros(int(is_row.sum()), dtype=np.uint8),
            positive_rows=np.array(
                [texts.row_of[document] for document in example.positives], dtype=np.int64
            ),
            positive_texts=[texts.of_document(document) for document in example.positives],
            positive_scores=np.full(len(example.positives), np.nan, dtype=np.float32),
            listed_texts=[
                texts.of_document(document)
                for document in example.negatives[: self.settings.negatives_per_query]
            ],
        )

    def _codes(self, mined: MinedQuery, known: Sequence[str], own_row: int, texts: "_Texts") -> Codes:
        """The first reason that holds for each candidate, before the judge."""
        plain = [texts.plain(text) for text in mined.texts]
        answers = list(
            dict.fromkeys(
                texts.plain(texts.of_document(document)) for document in known if texts.has(document)
            )
        )
        first_position: dict[str, int] = {}
        masks: dict[Reason, Mask] = {
            "known_positive": texts.are(known, mined),
            "query_itself": _among(plain, {normalised(mined.example.query)}) | _own_document(mined, own_row),
            "listed": texts.are(mined.example.negatives, mined),
            "duplicate": _among(plain, set(answers)),
            "repeated": np.array(
                [first_position.setdefault(text, index) != index for index, text in enumerate(plain)],
                dtype=bool,
            ),
        }
        if self.settings.near_duplicate and plain:
            masks["near_duplicate"] = np.any(
                self._overlaps(answers, plain) >= self.settings.near_duplicate, axis=0
            )
        remaining = ~np.logical_or.reduce(list(masks.values()))
        masks["rank"] = remaining & (np.cumsum(remaining) <= self.settings.skip_first)
        if self.settings.margin is not None:
            masks["margin"] = too_close(mined.scores, mined.positive_scores, self.settings.margin)
        if self.settings.relative_margin is not None:
            masks["relative_margin"] = too_close(
                mined.scores, mined.positive_scores, self.settings.relative_margin, relative=True
            )
        return first_reasons(len(plain), masks)

    def _overlaps(self, answers: Sequence[str], candidates: Sequence[str]) -> Float64[np.ndarray, "p c"]:
        if self._shingle_count > CACHED_SHINGLES:
            self._shingles, self._shingle_count = {}, 0
        new = [text for text in dict.fromkeys((*answers, *candidates)) if text not in self._shingles]
        for text, hashes in zip(new, shingles(new), strict=True):
            self._shingles[text] = hashes
            self._shingle_count += len(hashes)
        of_candidates = [self._shingles[text] for text in candidates]
        return np.stack([overlaps(self._shingles[text], of_candidates) for text in answers])

    def _choose(self, batch: Sequence[MinedQuery]) -> None:
        """Take candidates in the order of choice until there are enough; the judge scores no more than that
        takes.
        """
        orders = []
        for mined in batch:
            generator = query_generator(self.seed, mined.example.query_id, mined.example.query)
            orders.append(
                in_order_of_choice(
                    np.flatnonzero(mined.codes == PASSED), self.settings.choice, generator
                ).tolist()
            )
        if self.judge is None:
            for mined, order in zip(batch, orders, strict=True):
                mined.chosen = order[: self._missing(mined)]
            return
        queries = self.judge.encode_queries([mined.example.query for mined in batch])
        owners = np.repeat(np.arange(len(batch)), [len(mined.positive_texts) for mined in batch])
        rows = np.concatenate([mined.positive_rows for mined in batch])
        positives = self.judge.score(
            queries, Pairs(owners, rows, [text for mined in batch for text in mined.positive_texts])
        )
        while next_candidates := [
            (query, order.pop(0))
            for query, order in enumerate(orders)
            for _ in range(min(self._missing(batch[query]), len(order)))
        ]:
            pairs = Pairs(
                np.array([query for query, _ in next_candidates], dtype=np.int64),
                np.array(
                    [batch[query].rows[candidate] for query, candidate in next_candidates], dtype=np.int64
                ),
                [batch[query].texts[candidate] for query, candidate in next_candidates],
            )
            for (query, candidate), score in zip(
                next_candidates, self.judge.score(queries, pairs), strict=True
            ):
                self._decide(batch[query], candidate, score, positives[owners == query])

    def _decide(
        self, mined: MinedQuery, candidate: int, score: np.float32, positives: Float32[np.ndarray, " p"]
    ) -> None:
        mined.judged += 1
        scores = np.array([score], dtype=np.float32)
        assert self.judge_settings is not None
        if too_close(scores, positives, self.judge_settings.margin, relative=self.judge_settings.relative)[0]:
            mined.codes[candidate] = code_of("judge")
        else:
            mined.chosen.append(candidate)

    def _missing(self, mined: MinedQuery) -> int:
        return self.settings.negatives_per_query - mined.negatives


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of candidates, by row, and rows of the documents that the data names for their queries."""

    of_row: dict[int, str]
    row_of: dict[str, int]
    holds_ids: bool
    _plain: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        corpus: Documents,
        holds_ids: bool,
        rows: Int64[np.ndarray, "q c"],
        examples: Sequence[Example],
        answers: Sequence[Sequence[str]],
    ) -> "_Texts":
        """Read each text from the corpus once."""
        documents = list(
            dict.fromkeys(chain(chain.from_iterable(answers), *(example.negatives for example in examples)))
        )
        # Where documents are texts, their rows only tell which candidates they are.
        named = document_rows(documents, corpus, holds_ids=holds_ids)
        needed = np.unique(np.concatenate([rows[rows >= 0], named[named >= 0]]))
        of_row = dict(zip(needed.tolist(), corpus.texts(needed), strict=True))
        return cls(of_row, dict(zip(documents, named.tolist(), strict=True)), holds_ids)

    def has(self, document: str) -> bool:
        """Whether a document's text is known: an id of another row of the same query may have been dropped as
        missing.
        """
        return not self.holds_ids or self.row_of[document] >= 0

    def of_document(self, document: str) -> str:
        """The text of an id, or the text itself."""
        return self.of_row[self.row_of[document]] if self.holds_ids else document

    def plain(self, text: str) -> str:
        """A text normalised, once for all queries with this candidate."""
        plain = self._plain.get(text)
        if plain is None:
            plain = self._plain[text] = normalised(text)
        return plain

    def are(self, documents: Sequence[str], mined: MinedQuery) -> Mask:
        """Candidates that are one of some documents."""
        rows = np.array(
            [self.row_of[document] for document in documents if self.row_of[document] >= 0], dtype=np.int64
        )
        same = np.isin(mined.rows, rows)
        return same if self.holds_ids else same | _among(mined.texts, set(documents))


def _own_document(mined: MinedQuery, own_row: int) -> Mask:
    """The candidate with the query's id and text, possibly with a title."""
    same_id = mined.rows == own_row
    query = mined.example.query
    return np.array(
        [same and is_own_document(query, text) for same, text in zip(same_id, mined.texts, strict=True)],
        dtype=bool,
    )


def _among(texts: Sequence[str], others: set[str]) -> Mask:
    return np.fromiter((text in others for text in texts), dtype=bool, count=len(texts))


def _score_known_documents(
    batch: Sequence[MinedQuery], candidates: Candidates, start: int, texts: _Texts
) -> None:
    """Score positives and listed negatives together."""
    known = [
        (*mined.example.positives, *mined.example.negatives[: len(mined.listed_texts)]) for mined in batch
    ]
    owners = np.repeat(np.arange(len(batch)), [len(documents) for documents in known])
    rows = np.array([texts.row_of[document] for document in chain.from_iterable(known)], dtype=np.int64)
    scores = candidates.score(
        Pairs(owners + start, rows, [texts.of_document(document) for document in chain.from_iterable(known)])
    )
    for query, mined in enumerate(batch):
        mined.positive_scores, mined.listed_scores = np.split(
            scores[owners == query], [len(mined.positive_texts)]
        )
