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
from adiabat.mining.candidates import Found, Pairs, Source, Vectors
from adiabat.mining.filters import KEPT, Codes, Reason, code_of, coded, first_ranks, nearly_equal, normalised, overlaps, shingles, too_near
from adiabat.mining.mining_corpus import Documents
from adiabat.mining.mining_queries import Questions, entry_rows

Choice = Literal["ranked", "random"]


def query_generator(seed: int, query_id: str, query: str) -> np.random.Generator:
    """Random numbers of one query, whatever other queries there are and in whatever blocks they come."""
    return np.random.default_rng([seed, query_number(query_id, query)])


def query_number(query_id: str, query: str) -> int:
    """64 bits of a query."""
    digest = hashlib.blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(b"\0" + query.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def in_order_of_choice(kept: Int64[np.ndarray, " k"], choice: Choice, generator: np.random.Generator) -> Int64[np.ndarray, " k"]:
    """The order in which candidates are taken until there are enough."""
    return kept if choice == "ranked" else generator.permutation(kept)


QUERIES_AT_ONCE = 32
"""Queries whose candidates' texts are in memory together."""
SHINGLES_KEPT = 1 << 22
"""Of texts that were looked at lately: neighbouring queries often find the same ones. 8 bytes each."""


@dataclass(slots=True)
class Mined:
    """What became of one query.

    Attributes:
        example: The query and what the data says of it.
        rows: Of its candidates, best first.
        scores: Of them.
        texts: Of them.
        codes: Why each was dropped, or `KEPT`.
        positive_rows: Of its own positives; -1 for a text that is not in the corpus.
        positive_texts: Of them.
        positive_scores: Of them.
        chosen: Places among the candidates, in the order of choice.
        judged: Candidates that the judge was asked about.
        listed_texts: Of the negatives that the data lists and that are kept.
        listed_scores: Of them.
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
        """Listed and chosen ones."""
        return len(self.listed_texts) + len(self.chosen)


@dataclass(slots=True)
class Miner:
    """What does not change from block to block.

    Attributes:
        corpus: The documents.
        questions: All queries.
        source: Who proposes candidates.
        settings: What is dropped and chosen.
        seed: Of random choices.
        judge: A second model, or None.
        judging: Its margin.
    """

    corpus: Documents
    questions: Questions
    source: Source
    settings: MineSection
    seed: int = 0
    judge: Vectors | None = None
    judging: JudgeSection = field(default_factory=JudgeSection)
    _shingled: dict[str, UInt64[np.ndarray, " s"]] = field(default_factory=dict)
    _held: int = 0

    def mine(self, examples: Sequence[Example]) -> Iterator[Mined]:
        """Mine for some queries; what becomes of one does not depend on the others."""
        found = self.source.find([one.query for one in examples], self.settings.depth, lambda: self._positives(examples))
        for start in range(0, len(examples), QUERIES_AT_ONCE):
            yield from self._mine_part(examples[start : start + QUERIES_AT_ONCE], found, start)

    def _positives(self, examples: Sequence[Example]) -> list[list[str]]:
        """Texts of each query's positives."""
        if not self.questions.holds_ids:
            return [list(example.positives) for example in examples]
        entries = list(dict.fromkeys(chain.from_iterable(example.positives for example in examples)))
        texts = dict(zip(entries, self.corpus.texts(entry_rows(entries, self.corpus, holds_ids=True)), strict=True))
        return [[texts[entry] for entry in example.positives] for example in examples]

    def _mine_part(self, examples: Sequence[Example], found: Found, start: int) -> list[Mined]:
        known = [self.questions.known(example) for example in examples]
        texts = _Texts.of(self.corpus, self.questions.holds_ids, found.hits.rows[start : start + len(examples)], examples, known)
        mined = [self._undecided(example, found, start + place, texts) for place, example in enumerate(examples)]
        _score(mined, found, start, texts)
        own = self.corpus.rows([example.query_id for example in examples])
        for one, answers, row in zip(mined, known, own.tolist(), strict=True):
            one.codes = self._codes(one, answers, row, texts)
        self._choose(mined)
        return mined

    def _undecided(self, example: Example, found: Found, place: int, texts: "_Texts") -> Mined:
        rows = found.hits.rows[place]
        here = rows >= 0
        return Mined(
            example=example,
            rows=rows[here],
            scores=found.hits.scores[place][here],
            texts=[texts.of_row[row] for row in rows[here].tolist()],
            codes=np.zeros(int(here.sum()), dtype=np.uint8),
            positive_rows=np.array([texts.row_of[entry] for entry in example.positives], dtype=np.int64),
            positive_texts=[texts.of_entry(entry) for entry in example.positives],
            positive_scores=np.full(len(example.positives), np.nan, dtype=np.float32),
            listed_texts=[texts.of_entry(entry) for entry in example.negatives[: self.settings.negatives_per_query]],
        )

    def _codes(self, one: Mined, known: Sequence[str], own_row: int, texts: "_Texts") -> Codes:
        """The first reason that holds for each candidate; the judge has not been asked yet."""
        plain = [texts.plain(text) for text in one.texts]
        answers = list(dict.fromkeys(texts.plain(texts.of_entry(entry)) for entry in known if texts.has(entry)))
        masks: dict[Reason, Bool[np.ndarray, " c"]] = {
            "known_positive": texts.are(known, one),
            "query_itself": _among(plain, {normalised(one.example.query)}) | _own(one, own_row),
            "listed": texts.are(one.example.negatives, one),
            "duplicate": _among(plain, set(answers)),
            "repeated": _repeated(plain),
        }
        if self.settings.near_duplicate and plain:
            masks["near_duplicate"] = nearly_equal(self._overlaps(answers, plain), self.settings.near_duplicate)
        others = ~np.logical_or.reduce(list(masks.values()))
        masks["rank"] = first_ranks(others, self.settings.skip_first)
        if self.settings.margin is not None:
            masks["margin"] = too_near(one.scores, one.positive_scores, self.settings.margin)
        if self.settings.relative_margin is not None:
            masks["relative_margin"] = too_near(one.scores, one.positive_scores, self.settings.relative_margin, relative=True)
        return coded(len(plain), masks)

    def _overlaps(self, answers: Sequence[str], candidates: Sequence[str]) -> Float64[np.ndarray, "p c"]:
        wanted = [text for text in dict.fromkeys((*answers, *candidates)) if text not in self._shingled]
        if self._held > SHINGLES_KEPT:
            self._shingled, self._held = {}, 0
            wanted = list(dict.fromkeys((*answers, *candidates)))
        for text, runs in zip(wanted, shingles(wanted), strict=True):
            self._shingled[text] = runs
            self._held += len(runs)
        others = [self._shingled[text] for text in candidates]
        return np.stack([overlaps(self._shingled[text], others) for text in answers])

    def _choose(self, mined: Sequence[Mined]) -> None:
        """Take candidates in the order of choice until there are enough; a judge is asked about no more than it takes."""
        orders = []
        for one in mined:
            generator = query_generator(self.seed, one.example.query_id, one.example.query)
            orders.append(in_order_of_choice(np.flatnonzero(one.codes == KEPT), self.settings.choice, generator).tolist())
        if self.judge is None:
            for one, order in zip(mined, orders, strict=True):
                one.chosen = order[: self._wanted(one)]
            return
        queries = self.judge.of_queries([one.example.query for one in mined])
        positives = self.judge.score(queries, _positives_of(mined))
        ends = np.cumsum([len(one.positive_texts) for one in mined])
        bars = np.split(positives, ends[:-1])
        while asked := [(place, order.pop(0)) for place, order in enumerate(orders) for _ in range(self._missing(mined[place], order))]:
            pairs = Pairs(
                np.array([place for place, _ in asked], dtype=np.int64),
                np.array([mined[place].rows[candidate] for place, candidate in asked], dtype=np.int64),
                [mined[place].texts[candidate] for place, candidate in asked],
            )
            for (place, candidate), score in zip(asked, self.judge.score(queries, pairs), strict=True):
                self._decide(mined[place], candidate, score, bars[place])

    def _decide(self, one: Mined, candidate: int, score: np.float32, positives: Float32[np.ndarray, " p"]) -> None:
        one.judged += 1
        if too_near(np.array([score], dtype=np.float32), positives, self.judging.margin, relative=self.judging.relative)[0]:
            one.codes[candidate] = code_of("judge")
        else:
            one.chosen.append(candidate)

    def _wanted(self, one: Mined) -> int:
        return self.settings.negatives_per_query - len(one.listed_texts)

    def _missing(self, one: Mined, order: Sequence[int]) -> int:
        return min(self._wanted(one) - len(one.chosen), len(order))


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of some candidates, and of what the data says of their queries."""

    of_row: dict[int, str]
    row_of: dict[str, int]
    holds_ids: bool
    _plain: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, corpus: Documents, holds_ids: bool, rows: Int64[np.ndarray, "q c"], examples: Sequence[Example], known: Sequence[Sequence[str]]
    ) -> "_Texts":
        """Fetch them from the corpus, each once."""
        entries = list(dict.fromkeys(chain(chain.from_iterable(known), *(example.negatives for example in examples))))
        found = entry_rows(entries, corpus, holds_ids=holds_ids)
        # Where entries are texts their rows tell which candidates they are; the texts are at hand.
        wanted = np.unique(np.concatenate([rows[rows >= 0], found[found >= 0]]))
        return cls(
            dict(zip(wanted.tolist(), corpus.texts(wanted), strict=True)), dict(zip(entries, found.tolist(), strict=True)), holds_ids
        )

    def has(self, entry: str) -> bool:
        """Whether the text of an entry is known: an id that another row of the same query names may have been dropped as missing."""
        return not self.holds_ids or self.row_of[entry] >= 0

    def of_entry(self, entry: str) -> str:
        """The text of an id, or the text itself."""
        return self.of_row[self.row_of[entry]] if self.holds_ids else entry

    def plain(self, text: str) -> str:
        """A text normalised, once for all queries that found it."""
        found = self._plain.get(text)
        if found is None:
            found = self._plain[text] = normalised(text)
        return found

    def are(self, entries: Sequence[str], one: Mined) -> Bool[np.ndarray, " c"]:
        """Candidates that are one of some entries."""
        rows = np.array([self.row_of[entry] for entry in entries if self.row_of[entry] >= 0], dtype=np.int64)
        same = np.isin(one.rows, rows)
        return same if self.holds_ids else same | _among(one.texts, set(entries))


def _own(one: Mined, own_row: int) -> Bool[np.ndarray, " c"]:
    """The candidate that has the query's id and is the query, perhaps under a title."""
    same_id = one.rows == own_row
    return np.array([same and is_own_document(one.example.query, text) for same, text in zip(same_id, one.texts, strict=True)], dtype=bool)


def _among(texts: Sequence[str], wanted: set[str]) -> Bool[np.ndarray, " c"]:
    return np.fromiter((text in wanted for text in texts), dtype=bool, count=len(texts))


def _repeated(texts: Sequence[str]) -> Bool[np.ndarray, " c"]:
    seen: dict[str, int] = {}
    return np.fromiter((seen.setdefault(text, place) != place for place, text in enumerate(texts)), dtype=bool, count=len(texts))


def _score(mined: Sequence[Mined], found: Found, start: int, texts: _Texts) -> None:
    """Scores of positives and listed negatives, asked for together."""
    told = [(*one.example.positives, *one.example.negatives[: len(one.listed_texts)]) for one in mined]
    owner = np.repeat(np.arange(len(mined)), [len(entries) for entries in told])
    rows = np.array([texts.row_of[entry] for entry in chain.from_iterable(told)], dtype=np.int64)
    scores = found.score(Pairs(owner + start, rows, [texts.of_entry(entry) for entry in chain.from_iterable(told)]))
    for place, one in enumerate(mined):
        own = scores[owner == place]
        one.positive_scores, one.listed_scores = np.split(own, [len(one.positive_texts)])


def _positives_of(mined: Sequence[Mined]) -> Pairs:
    owner = np.repeat(np.arange(len(mined)), [len(one.positive_texts) for one in mined])
    return Pairs(owner, np.concatenate([one.positive_rows for one in mined]), [text for one in mined for text in one.positive_texts])
