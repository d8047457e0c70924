"""What an inspection found, as plain data: a table and ``--json`` are made from it alone."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Role = Literal["query", "positive", "negative", "document"]
"""What a text is in the data: a query, a document that an example lists, or a document of a corpus."""

ROLES: tuple[Role, ...] = ("query", "positive", "negative", "document")

Layout = Literal["examples", "corpus", "grid", "BEIR folder"]

GroupKind = Literal["topic", "tag"]
"""What batches of one kind can go by."""

Severity = Literal["fault", "warning", "note"]
"""``fault``: other verbs refuse the data; ``warning``: they take it, and perhaps otherwise than was meant; ``note``: good to know."""

INSPECTION_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the data that its owner should know.

    Attributes:
        kind: One of a fixed set of names, such as ``repeated ids``.
        severity: See `Severity`.
        count: Of what the sentence speaks of.
        sentence: What it is, where (the first few places), and what to do.
    """

    kind: str
    severity: Severity
    count: int
    sentence: str


@dataclass(frozen=True, slots=True)
class TextCounts:
    """The texts of one role.

    Attributes:
        role: Which.
        texts: As they stand in the rows, repeated ones each time.
        distinct: Different ones, character for character.
        distinct_folded: Different ones where width, case, composition and white space do not count (Unicode NFKC, case folding).
        misread: Texts with characters that look mis-decoded.
    """

    role: Role
    texts: int
    distinct: int
    distinct_folded: int
    misread: int


@dataclass(frozen=True, slots=True)
class PairCounts:
    """The pairs of a query and a document that answers it.

    Attributes:
        pairs: One for each positive of each row.
        distinct_pairs: Different ones.
        unique_documents: ``distinct positives / pairs``: the "% of unique documents" of Table 3 of Moiseev et al. 2023, whose 17 % of
        TriviaQA and
            98 % of MS MARCO are of the documents in the train split.
        documents_once: Distinct positives that stand in one pair only.
        most_repeated: Pairs of the positive that stands in most.
        queries_asked_again: Rows whose query text an earlier row has.
        queries_with_several: Distinct queries with more than one distinct positive.
        on_both_sides: Distinct texts that are a query in one place and a document in another.
        own_answer: Pairs whose query and document are the same text.
        negatives: Listed, as they stand in the rows.
        rows_without_negatives: Rows that list none.
        negatives_that_answer: Negatives that are a positive of the same query, in that row or another.
        missing_documents: Entries whose id the corpus does not have; 0 without a corpus.
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
    """The pairs of one topic, or of one tag of a topic.

    Attributes:
        name: Its beginning.
        pairs: Different ones.
        within: Of a tag, its topic; "" where it has none.
        tags: Of a topic, the largest of its tags: (tag, pairs).
        tag_count: Of a topic, how many tags it has.
    """

    name: str
    pairs: int
    within: str = ""
    tags: tuple[tuple[str, int], ...] = ()
    tag_count: int = 0


@dataclass(frozen=True, slots=True)
class SmallGroups:
    """Groups that cannot fill a batch.

    Attributes:
        batch_size: In pairs.
        groups: That have fewer pairs.
        pairs: Of these groups.
    """

    batch_size: int
    groups: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Groups:
    """How pairs are spread over topics, or over tags.

    Attributes:
        kind: What they go by.
        pairs: Different ones; one that is listed again counts where it came first, as in training.
        without: Those that have no name of this kind.
        groups: Different topics; or tags, of which equal ones of different topics are different groups, as in training.
        names: Different names: of tags less than `groups` where some stand with several topics.
        largest: At most eight.
        smallest: None where no pair has a name.
        small: For several batch sizes.
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
        role: Which.
        unit: ``tokens`` (prompt and special tokens included, before anything is cut), ``words`` (between white space) or ``characters``.
        measured: Texts looked at.
        texts: Texts there are; where it is more, those measured were drawn at random.
        mean: In the unit.
        quantiles: (percent, length): so many percent of the texts are at most so long.
        histogram: (shortest, longest, texts) of each bar.
    """

    role: Role
    unit: Literal["tokens", "words", "characters"]
    measured: int
    texts: int
    mean: float
    quantiles: tuple[tuple[int, int], ...]
    histogram: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Truncation:
    """What a model does not see of the texts of one role.

    Attributes:
        role: Which.
        limit: ``max_tokens`` of its tower.
        measured: Texts looked at.
        cut: Texts of them that are longer.
        share: ``cut / measured``.
        interval: Wilson's 95 % interval of the share among all texts; None where all were looked at.
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
        role: Which.
        identified_by: Name and version of what told them; ``the data`` where it names them itself; None where nothing is installed.
        measured: Texts looked at, each by its beginning.
        texts: Texts there are.
        languages: (code of ISO 639, texts), most first.
        unsure: Texts too short or too ambiguous to be told; they are in no language's count.
        scripts: (script of most of a text's letters, texts), most first; ``none`` where it has no letter.
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
    """One column of the file.

    Attributes:
        name: As the file has it.
        used_as: Our name of it, or "" where it is not read.
        kinds: (kind of value, rows), most first.
        rows: That have the column.
        values: (value, rows), most first; None where there are too many to be tags, or they are no short texts or numbers.
    """

    name: str
    used_as: str
    kinds: tuple[tuple[str, int], ...]
    rows: int
    values: tuple[tuple[str, int], ...] | None


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row of the data, for the eye.

    Attributes:
        place: ``file:line``, or the id of a document.
        texts: (role, text), each text cut at `SHOWN_CHARACTERS`.
    """

    place: str
    texts: tuple[tuple[Role, str], ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The whole of an inspection.

    Attributes:
        source: As it was named.
        name: Of the data set, its split included.
        layout: What a row is.
        rows: That could be used.
        model: Whose tokenizer counted, or None.
        texts: Of each role that there is.
        pairs: Of examples; None of a corpus or a grid.
        lengths: Of each role, in each unit.
        truncation: Of each role; empty without a model.
        languages: Of each role.
        groups: Of topics and of tags, where the data has such a column.
        columns: Of the file; empty of a BEIR folder, whose columns are fixed.
        findings: Faults first, then warnings, then notes.
        examples: Drawn at random, in file order.
        seconds: It took.
        format: Version of this layout.
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
    examples: tuple[ShownRow, ...] = field(repr=False)
    seconds: float
    format: int = INSPECTION_FORMAT

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What makes other verbs refuse the data."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    def to_json(self) -> dict[str, Any]:
        """Nested plain data, ready for `json.dump`."""
        return asdict(self)
