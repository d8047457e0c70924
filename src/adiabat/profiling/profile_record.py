"""The result of an inspection as plain data: the table and ``--json`` are made from it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from adiabat.results.power_record import Power

Role = Literal["query", "positive", "negative", "document"]
"""Role of a text: a query, a document that an example lists, or a document of a corpus."""

ROLES: tuple[Role, ...] = ("query", "positive", "negative", "document")

PLURALS: Mapping[Role, str] = {
    "query": "queries",
    "positive": "positives",
    "negative": "negatives",
    "document": "documents",
}

Layout = Literal["examples", "corpus", "grid", "BEIR folder"]

GroupKind = Literal["topic", "tag"]
"""Column that batches can be grouped by."""

NAMES: tuple[GroupKind, ...] = ("topic", "tag")
"""Columns that batches can be grouped by, the coarser first."""

Unit = Literal["tokens", "words", "characters"]
"""``tokens`` include prompt and special tokens, before truncation; ``words`` stand between white space."""

Severity = Literal["fault", "warning", "note"]
"""``fault``: other verbs refuse the data; ``warning``: they read it, perhaps otherwise than intended;
``note``: good to know."""

INSPECTION_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the data: `kind` is one of a fixed set of names, `count` the number of rows or texts that
    it concerns.

    `sentence` says what is wrong, where (the first few locations), and what to do.
    """

    kind: str
    severity: Severity
    count: int
    sentence: str


@dataclass(frozen=True, slots=True)
class TextCounts:
    """The texts of one role; `distinct_folded` disregards width, case, composition and white space (Unicode
    NFKC, case folding).
    """

    role: Role
    texts: int
    distinct: int
    distinct_folded: int
    misread: int


@dataclass(frozen=True, slots=True)
class PairCounts:
    """The pairs of a query and a positive document.

    Attributes:
        unique_documents: Distinct positives / pairs: the "% of unique documents" of Table 3 of Moiseev et al.
            2023, whose 17 % of TriviaQA and 98 % of MS MARCO count the documents in the train split.
        most_repeated: Pairs of the most frequent positive.
        queries_asked_again: Rows whose query text an earlier row has.
        negatives_that_answer: Negatives that are a positive of the same query, in that row or another.
        missing_documents: Listed ids that the corpus does not have; 0 without a corpus.
    """

    pairs: int
    distinct_pairs: int
    unique_documents: float
    documents_once: int
    most_repeated: int
    queries_asked_again: int
    queries_with_several: int
    on_both_sides: int
    own_answer: int
    negatives: int
    rows_without_negatives: int
    negatives_that_answer: int
    missing_documents: int = 0


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """The distinct pairs of one topic, with its largest tags and their pairs; or of one tag `within` a topic,
    "" if it has none.
    """

    name: str
    pairs: int
    within: str = ""
    tags: tuple[tuple[str, int], ...] = ()
    tag_count: int = 0


@dataclass(frozen=True, slots=True)
class SmallGroups:
    """Groups with fewer pairs than a batch, and the pairs that they have together."""

    batch_size: int
    groups: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Groups:
    """How pairs are spread over topics, or over tags.

    Attributes:
        pairs: Distinct ones; a repeated pair counts in the group of its first row, as in training.
        groups: Number of topics or tags; equal tags of different topics are different groups, as in training.
    """

    kind: GroupKind
    pairs: int
    without: int
    groups: int
    names: int
    largest: tuple[NamedGroup, ...]
    smallest: NamedGroup | None
    small: tuple[SmallGroups, ...]


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the texts of one role are.

    Attributes:
        measured: Measured texts; where fewer than `texts`, they were drawn at random.
        quantiles: (percent, length): this share of the texts is at most so long.
        histogram: (shortest, longest, texts) of each bar.
    """

    role: Role
    unit: Unit
    measured: int
    texts: int
    mean: float
    quantiles: tuple[tuple[int, int], ...]
    histogram: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Truncation:
    """The texts of one role that a model truncates.

    Attributes:
        interval: Wilson's 95 % interval of the share among all texts; None if all were measured.
        tokens_lost: Share of all their tokens that is beyond the limit.
    """

    role: Role
    limit: int
    measured: int
    cut: int
    share: float
    interval: tuple[float, float] | None
    tokens_lost: float


@dataclass(frozen=True, slots=True)
class Languages:
    """The languages and scripts of the texts of one role.

    Attributes:
        identified_by: Name and version of the identifier; ``the data`` where it names its languages; None if
            none is installed.
        measured: Texts examined, each by its first characters.
        unsure: Texts too short or too ambiguous to identify; no language counts them.
        scripts: (script of most of a text's letters, texts), most frequent first; ``none`` for texts without
            letters.
    """

    role: Role
    identified_by: str | None
    measured: int
    texts: int
    languages: tuple[tuple[str, int], ...]
    unsure: int
    scripts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the file: `used_as` is its name among ours, "" if it is not read; `kinds` and `values`
    have their rows.

    Values are None if they are too many to be tags, or not short texts or numbers.
    """

    name: str
    used_as: str
    kinds: tuple[tuple[str, int], ...]
    rows: int
    values: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A row of the data to look at: ``file:line``, and (role, text), each text truncated to
    `SHOWN_CHARACTERS`.
    """

    location: str
    texts: tuple[tuple[Role, str], ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of `adiabat.inspect`.

    Attributes:
        rows: Rows without faults.
        pairs: None for a corpus or a grid.
        truncation: A record for each role; empty without a model.
        columns: Columns of the file; empty for a BEIR folder, whose columns are fixed.
        power: What its queries could show of a tuning of the model; None without a store.
    """

    source: str
    name: str
    layout: Layout
    rows: int
    model: str | None
    texts: tuple[TextCounts, ...]
    pairs: PairCounts | None
    lengths: tuple[Lengths, ...]
    truncation: tuple[Truncation, ...]
    languages: tuple[Languages, ...]
    groups: tuple[Groups, ...]
    columns: tuple[Column, ...]
    findings: tuple[Finding, ...]
    examples: tuple[ExampleRow, ...] = field(repr=False)
    seconds: float
    power: Power | None = None
    format: int = INSPECTION_FORMAT

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Findings for which other verbs refuse the data."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        return asdict(self)
