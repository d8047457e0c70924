"""Mining for a block of queries: candidates, filters, the judge, the choice."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from adiabat.store.search import Hits

Rows = Int64[np.ndarray, " _"]
"""Rows of the corpus."""

Scores = Float32[np.ndarray, " c"]
"""A score for each candidate of a query."""

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
    # The zero byte keeps an id and a query apart: "a" and "bc" differ from "ab" and "c".
    digest.update(b"\0" + query.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def in_order_of_choice(passed: Rows, choice: Choice, generator: np.random.Generator) -> Rows:
    """The order in which candidates are taken until there are enough."""
    return passed if choice == "ranked" else generator.permutation(passed)


_NO_SCORES = np.empty(0, dtype=np.float32)


@dataclass(slots=True)
class MinedQuery:
    """A query with its candidates, best first, and what was chosen of them.

    Attributes:
        rows: Rows of the candidates in the corpus.
        scores: Of the candidates; those of positives and listed negatives are on the same scale.
        texts: Of the candidates, as the corpus has them.
        codes: Reason why each candidate was dropped, or `PASSED`.
        positive_rows: Rows of its own positives; -1 for a text that is not in the corpus.
        chosen: Positions of the mined negatives among the candidates, in the order of choice.
        judged: Candidates that the judge scored.
        listed_texts: Negatives that the data list and the settings keep, which count towards the number
            wanted.
    """

    example: Example
    rows: Rows
    scores: Scores
    texts: list[str]
    codes: Codes
    positive_rows: Rows
    positive_texts: list[str]
    positive_scores: Float32[np.ndarray, " p"]
    chosen: list[int] = field(default_factory=list)
    judged: int = 0
    listed_texts: list[str] = field(default_factory=list)
    listed_scores: Float32[np.ndarray, " l"] = field(default_factory=_NO_SCORES.copy)

    @property
    def negatives(self) -> int:
        """Number of listed and mined negatives."""
        return len(self.listed_texts) + len(self.chosen)


@dataclass(slots=True)
class Miner:
    """Mines any of the queries.

    Attributes:
        corpus: Documents that may become negatives.
        source: Proposes candidates, and scores positives on their scale.
        seed: Of the random choice among candidates that pass.
        judge: A second model, whose opinion drops candidates that pass all other filters; None for none.
    """

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
        queries = [example.query for example in examples]
        positives = partial(self._positive_texts, examples)
        candidates = self.source.find(queries, self.settings.depth, positives)
        for start in range(0, len(examples), BATCH_QUERIES):
            yield from self._mine_batch(examples[start : start + BATCH_QUERIES], candidates, start)

    def _positive_texts(self, examples: Sequence[Example]) -> list[list[str]]:
        """Texts of each query's positives."""
        if not self.queries.holds_ids:
            return [list(example.positives) for example in examples]
        ids = list(dict.fromkeys(chain.from_iterable(example.positives for example in examples)))
        texts = dict(zip(ids, self.corpus.texts(self.corpus.rows(ids)), strict=True))
        return [list(map(texts.__getitem__, example.positives)) for example in examples]

    def _mine_batch(
        self, examples: Sequence[Example], candidates: Candidates, start: int
    ) -> list[MinedQuery]:
        """Mine for queries whose candidates begin at row `start` of the hits.

        The order matters: positives are scored before margins apply, and the judge sees what is left.
        """
        answers = [self.queries.known_answers(example) for example in examples]
        rows = candidates.hits.rows[start : start + len(examples)]
        texts = _Texts(self.corpus, self.queries.holds_ids, rows, examples, answers)
        batch = []
        for query, example in enumerate(examples, start):
            hits = Hits(candidates.hits.rows[query], candidates.hits.scores[query])
            batch.append(self._unfiltered(example, hits, texts))
        # Margins need the scores of the positives.
        _score_known_documents(batch, candidates, start, texts)
        own_rows = self.corpus.rows([example.query_id for example in examples])
        for mined, known, own_row in zip(batch, answers, own_rows.tolist(), strict=True):
            mined.codes = self._codes(mined, known, own_row, texts)
        self._choose(batch)
        return batch

    def _unfiltered(self, example: Example, hits: Hits, texts: "_Texts") -> MinedQuery:
        """A query with all of its candidates, before any document is scored."""
        is_row = hits.rows >= 0
        rows = hits.rows[is_row]
        listed = example.negatives[: self.settings.negatives_per_query]
        return MinedQuery(
            example=example,
            rows=rows,
            scores=hits.scores[is_row],
            texts=[texts.of_row[row] for row in rows.tolist()],
            codes=np.zeros(len(rows), dtype=np.uint8),
            positive_rows=texts.rows(example.positives),
            positive_texts=texts.of_documents(example.positives),
            positive_scores=np.full(len(example.positives), np.nan, dtype=np.float32),
            listed_texts=texts.of_documents(listed),
        )

    def _codes(self, mined: MinedQuery, known: Sequence[str], own_row: int, texts: "_Texts") -> Codes:
        """The first reason that holds for each candidate, before the judge.

        Args:
            known: Positives of the query, in this example or in another.
            own_row: Row of the document that has the query's id; -1 for none.
        """
        plain = [texts.plain(text) for text in mined.texts]
        present = texts.of_documents([document for document in known if texts.has(document)])
        answers = list(dict.fromkeys(map(texts.plain, present)))
        query = {normalised(mined.example.query)}
        masks: dict[Reason, Mask] = {
            "known_positive": texts.are(known, mined),
            "query_itself": _among(plain, query) | _own_document(mined, own_row),
            "listed": texts.are(mined.example.negatives, mined),
            "duplicate": _among(plain, set(answers)),
            "repeated": _repeated(plain),
        }
        settings = self.settings
        if settings.near_duplicate and plain:
            copied = self._overlaps(answers, plain) >= settings.near_duplicate
            masks["near_duplicate"] = np.asarray(copied.any(axis=0))
        # The first ranks are counted among the candidates that no reason has dropped.
        remaining = ~np.logical_or.reduce(list(masks.values()))
        masks["rank"] = remaining & (np.cumsum(remaining) <= settings.skip_first)
        scores, positives = mined.scores, mined.positive_scores
        if settings.margin is not None:
            masks["margin"] = too_close(scores, positives, settings.margin)
        if settings.relative_margin is not None:
            masks["relative_margin"] = too_close(scores, positives, settings.relative_margin, relative=True)
        return first_reasons(len(plain), masks)

    def _overlaps(self, answers: Sequence[str], candidates: Sequence[str]) -> Float64[np.ndarray, "p c"]:
        """How far each candidate is a copy of each answer."""
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
        orders: list[list[int]] = []
        for mined in batch:
            # A generator of its own, so that no query depends on those before it.
            generator = query_generator(self.seed, mined.example.query_id, mined.example.query)
            passed = np.flatnonzero(mined.codes == PASSED)
            orders.append(in_order_of_choice(passed, self.settings.choice, generator).tolist())
        if self.judge is None:
            for mined, order in zip(batch, orders, strict=True):
                mined.chosen = order[: self._missing(mined)]
            return
        queries = self.judge.encode_queries([mined.example.query for mined in batch])
        owners = np.repeat(np.arange(len(batch)), [len(mined.positive_texts) for mined in batch])
        rows = np.concatenate([mined.positive_rows for mined in batch])
        texts = list(chain.from_iterable(mined.positive_texts for mined in batch))
        positives = self.judge.score(queries, Pairs(owners, rows, texts))
        while tried := self._next_candidates(batch, orders):
            pairs = Pairs(
                np.array([query for query, _ in tried], dtype=np.int64),
                np.array([batch[query].rows[candidate] for query, candidate in tried], dtype=np.int64),
                [batch[query].texts[candidate] for query, candidate in tried],
            )
            scores = self.judge.score(queries, pairs)
            for index, (query, candidate) in enumerate(tried):
                self._decide(batch[query], candidate, scores[index : index + 1], positives[owners == query])

    def _next_candidates(
        self, batch: Sequence[MinedQuery], orders: Sequence[list[int]]
    ) -> list[tuple[int, int]]:
        """Query and candidate of as many as each query still needs, taken from its order."""
        candidates = []
        for query, order in enumerate(orders):
            missing = self._missing(batch[query])
            candidates += [(query, candidate) for candidate in order[:missing]]
            # Candidates that the judge drops are replaced by the next ones in the following round.
            del order[:missing]
        return candidates

    def _decide(
        self, mined: MinedQuery, candidate: int, score: Scores, positives: Float32[np.ndarray, " p"]
    ) -> None:
        """Choose a candidate, or drop it by its score of the judge."""
        mined.judged += 1
        rule = self.judge_settings
        assert rule is not None
        if too_close(score, positives, rule.margin, relative=rule.relative)[0]:
            mined.codes[candidate] = code_of("judge")
        else:
            mined.chosen.append(candidate)

    def _missing(self, mined: MinedQuery) -> int:
        """Number of negatives that a query still needs."""
        return self.settings.negatives_per_query - mined.negatives


class _Texts:
    """Texts of candidates, by row, and rows of the documents that the data names for their queries.

    It holds the texts of one batch of queries, each once, however many queries share it.
    """

    def __init__(
        self,
        corpus: Documents,
        holds_ids: bool,
        rows: Int64[np.ndarray, "q c"],
        examples: Sequence[Example],
        answers: Iterable[Sequence[str]],
    ) -> None:
        """Read each text from the corpus once."""
        self.holds_ids = holds_ids
        self._plain: dict[str, str] = {}
        listed = (example.negatives for example in examples)
        documents = list(dict.fromkeys(chain.from_iterable((*answers, *listed))))
        # Where documents are texts, their rows only tell which candidates they are.
        named = document_rows(documents, corpus, holds_ids=holds_ids)
        self.row_of = dict(zip(documents, named.tolist(), strict=True))
        needed = np.unique(np.concatenate([rows[rows >= 0], named[named >= 0]]))
        self.of_row = dict(zip(needed.tolist(), corpus.texts(needed), strict=True))

    def has(self, document: str) -> bool:
        """Whether a document's text is known: an id of another row of the same query may have been dropped as
        missing.
        """
        return not self.holds_ids or self.row_of[document] >= 0

    def of_documents(self, documents: Sequence[str]) -> list[str]:
        """The texts of ids, or the texts themselves."""
        if not self.holds_ids:
            return list(documents)
        return [self.of_row[self.row_of[document]] for document in documents]

    def rows(self, documents: Iterable[str]) -> Rows:
        """Rows of documents, -1 for a text outside the corpus."""
        return np.array([self.row_of[document] for document in documents], dtype=np.int64)

    def plain(self, text: str) -> str:
        """A text normalised, once for all queries with this candidate."""
        if text not in self._plain:
            self._plain[text] = normalised(text)
        return self._plain[text]

    def are(self, documents: Sequence[str], mined: MinedQuery) -> Mask:
        """Candidates that are one of some documents."""
        # A candidate has a row, and so never that of a text outside the corpus.
        same = np.isin(mined.rows, self.rows(documents))
        return same if self.holds_ids else same | _among(mined.texts, set(documents))


def _own_document(mined: MinedQuery, own_row: int) -> Mask:
    """The candidate with the query's id and text, possibly with a title."""
    own: Mask = mined.rows == own_row
    for position in np.flatnonzero(own):
        own[position] = is_own_document(mined.example.query, mined.texts[position])
    return own


def _repeated(texts: Sequence[str]) -> Mask:
    """Texts that an earlier candidate has."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(text, index) != index for index, text in enumerate(texts)], dtype=bool)


def _among(texts: Sequence[str], others: set[str]) -> Mask:
    """Which texts are one of some others."""
    return np.fromiter((text in others for text in texts), dtype=bool, count=len(texts))


def _score_known_documents(
    batch: Sequence[MinedQuery], candidates: Candidates, start: int, texts: _Texts
) -> None:
    """Score positives and listed negatives together."""
    documents, counts = list[str](), list[int]()
    for mined in batch:
        listed = mined.example.negatives[: len(mined.listed_texts)]
        documents += (*mined.example.positives, *listed)
        counts.append(len(mined.positive_texts) + len(listed))
    owners = np.repeat(np.arange(len(batch)), counts)
    pairs = Pairs(owners + start, texts.rows(documents), texts.of_documents(documents))
    scores = candidates.score(pairs)
    for query, mined in enumerate(batch):
        own = scores[owners == query]
        mined.positive_scores, mined.listed_scores = np.split(own, [len(mined.positive_texts)])
