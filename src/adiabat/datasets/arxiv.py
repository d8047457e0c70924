"""*arxiv-negatives*: papers of arXiv, each with 21 other papers as negatives, from the most similar to a
random one (Vasilyev et al. 2024).

The source is the metadata snapshot of arXiv: JSON lines with ``id``, ``title``, ``abstract`` and
``categories`` (names with spaces between them, or a list); other keys are ignored. It is read twice, first
for the sizes of the categories. Only selected papers stay in memory, about 2 KB each.

- *Papers*: those with a category of at most 10,000 papers, counted over the whole snapshot.
- *Difficulty 1 to 20*: each paper's categories are sorted from small to large. Candidates are the papers
  whose lists share the longest prefix with the paper's own list; one other paper is enough. Negatives are the
  20 candidates closest by Jensen-Shannon distance between the words of the abstracts, the closest first;
  where there are fewer, the last one is repeated. *Difficulty 21*: any other paper, drawn at random, perhaps
  one of the 20. An example lists its negatives in this order, so negative number d is that of difficulty d.
- *Flavour title*: the query is the title, the document the abstract. *Flavour first*: the query is the first
  sentence of the abstract, the document the rest of it, and negatives lose their first sentence too;
  abstracts of one sentence are skipped.
- Texts are single-spaced. Of papers with the same document text, such as one submitted twice, the one with
  the lowest id stays: the others would be negatives that answer the query.

Results depend on ids, not on the order of the file: papers are sorted by id, ties between equally close
papers go by id, and random papers follow from the seed and the selected ids.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from adiabat.config.dataset_settings import ArxivSection, ArxivSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import first_row, id_value, optional_text, parsed_rows
from adiabat.data.table_rows import FileFaults, Row, RowError, UniqueNames, read_rows, value_kind
from adiabat.data.text_hashes import held_out_queries
from adiabat.datasets.neighbours import Categories, count_words, groups_of, nearest_of_groups, sort_by_size
from adiabat.datasets.writer import DatasetSummary, DatasetWriter, SkipCounts, create_dataset

COLUMNS = ("id", "title", "abstract", "categories")
"""Columns of the snapshot that are read."""

NEAREST = 20
"""Negatives chosen by distance; one more is random."""

PROGRESS_ROWS = 10_000
"""Rows between two progress reports."""

_SENTENCE_END = re.compile(r"""(?P<mark>[.!?…؟۔।॥]+)[)\]}"'”’»]*(?=\s)|[。！？｡]+[」』”’）]*|\n[^\S\n]*\n""")
_OPENERS = re.compile(r"""[\s(\[{"'“‘«„¿¡]*""")
_LETTER = re.compile(r"\w")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_WORD_CHARACTERS = 40
"""Characters searched for the word before a full stop: longer than any abbreviation below."""
_BEFORE_NAMES = re.compile(
    r"(?:mr|mrs|ms|mx|dr|prof|rev|hon|gen|gov|sen|rep|pres|lt|col|maj|capt|cmdr|adm|sgt|cpl|st|mt|ft|messrs|mme|mlle|al|cf|v|vs|viz|ca"
    r"|approx)",
    re.IGNORECASE,
)
_BEFORE_NUMBERS = re.compile(
    r"(?:c|no|nos|nr|fig|figs|eq|eqs|ref|refs|sec|ch|vol|p|pp|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)",
    re.IGNORECASE,
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Split a text into sentences, as (start, end) positions without surrounding white space."""
    bounds = [0]
    for match in _SENTENCE_END.finditer(text):
        if _ends_sentence(text, match) and _LETTER.search(text, bounds[-1], match.end()):
            bounds.append(match.end())
    if len(bounds) > 1 and not _LETTER.search(text, bounds[-1]):
        bounds.pop()  # A trailing mark without letters belongs to the last sentence.
    spans = []
    for start, end in pairwise([*bounds, len(text)]):
        sentence = text[start:end]
        if sentence.strip():
            spans.append((end - len(sentence.lstrip()), start + len(sentence.rstrip())))
    return spans


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a mark that may end a sentence does: no small letter follows, and it ends no abbreviation."""
    mark = match["mark"]
    if mark is None:
        return True
    opened = _OPENERS.match(text, match.end())
    following = text[opened.end() : opened.end() + 1] if opened else ""
    if following.islower():
        return False
    return mark != "." or not _is_abbreviation(text, match.start(), following)


def _is_abbreviation(text: str, stop: int, following: str) -> bool:
    """Whether the full stop at `stop` marks an abbreviation; `following` is the next letter or digit."""
    match = _LAST_WORD.search(text[max(0, stop - _WORD_CHARACTERS) : stop])
    if match is None:
        return False
    word = match[0]
    # Such as e.g., or the initial of a name.
    if "." in word or (len(word) == 1 and word.isupper()) or _BEFORE_NAMES.fullmatch(word):
        return True
    return following.isdigit() and _BEFORE_NUMBERS.fullmatch(word) is not None


def first_sentence_end(abstract: str) -> int:
    """End of an abstract's first sentence; a full stop inside a formula does not end it."""
    is_paired = _dollars(abstract) % 2 == 0
    for _, end in sentence_spans(abstract):
        # An odd number of dollars opens a formula that is not closed.
        if not is_paired or _dollars(abstract[:end]) % 2 == 0:
            return end
    return len(abstract)


def _dollars(text: str) -> int:
    """Number of dollars that open or close a formula."""
    return text.replace(r"\$", "").count("$")


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of the snapshot.

    Attributes:
        title: "" if it is missing, as for the abstract.
        first_end: Where the abstract's first sentence ends.
        location: File and line, for messages.
    """

    paper_id: str
    title: str
    abstract: str
    first_end: int
    categories: Categories
    location: str

    def query(self, section: ArxivSection) -> str:
        """The query of the flavour, "" if the paper has none."""
        return self.title if section.flavour == "title" else self.abstract[: self.first_end]

    def document(self, section: ArxivSection) -> str:
        """The document of the flavour, "" if the paper has none."""
        return self.abstract if section.flavour == "title" else self.abstract[self.first_end :].lstrip()


@dataclass(frozen=True, slots=True)
class _Census:
    """Papers of a snapshot, and papers of each category."""

    papers: int
    sizes: Mapping[str, int]

    def small_categories(self, limit: int) -> set[str]:
        """Categories of at most so many papers."""
        return {category for category, size in self.sizes.items() if size <= limit}


def make_arxiv(source: Path, out: Path, settings: ArxivSettings, *, watch: Watch = SILENT) -> DatasetSummary:
    """Make *arxiv-negatives* in one flavour.

    Writes ``corpus.jsonl.gz``, ``test.jsonl.gz`` with 21 negatives per paper, from hard to easy, and for each
    requested difficulty the
    same with that negative alone: the source measures on ``test-difficulty-21.jsonl.gz``. With
    `ArxivSection.train_fraction` also ``train``. For each of `ArxivSection.narrow`, such as ``math.``, papers
    with such a category go to ``narrow-math``, to tune on, and those of ``test`` without any to
    ``test-without-math``, to measure on.
    """
    section = settings.arxiv
    with create_dataset(
        out, maker="arxiv-negatives", source=source, settings=settings, documents=section.documents
    ) as writer:
        # A first pass, since the sizes of categories decide which papers stay in memory.
        census = _count_categories(source, watch)
        papers = _select(_read_papers(source, census, section, watch), census, section, writer)
        files = _assign_files(papers, section, writer)
        negatives = _negatives(papers, census, settings, writer, watch)
        _write(papers, negatives, files, section, writer, watch)
        return writer.summary


def _count_categories(source: Path, watch: Watch) -> _Census:
    """Check every row of the snapshot and count the papers of each category."""
    watch.note(f"counting the papers of each category in {source}")
    faults = FileFaults()
    sizes: Counter[str] = Counter()
    papers = 0
    first, rows = first_row(read_rows(source, faults=faults), faults, source)
    if absent := [column for column in COLUMNS if column not in first.values]:
        # A different kind of file: faults of its rows would add nothing.
        raise DataError(
            f"{source} must be the metadata snapshot, whose rows have {', '.join(COLUMNS)}, got "
            f"{', '.join(first.values) or 'no columns'}: {', '.join(absent)} missing; name that file"
        )
    for categories in parsed_rows(rows, faults, _checked_categories):
        # A category that a paper names twice counts once.
        sizes.update(set(categories))
        papers += 1
    faults.raise_if_any()
    return _Census(papers, sizes)


def _checked_categories(row: Row) -> Categories:
    """Categories of a row whose other columns are valid too."""
    id_value(_value(row, "id"), "id", row.location)
    for column in ("title", "abstract"):
        _single_spaced(row, column)
    return _categories(row)


def _value(row: Row, column: str) -> object:
    """The value of a column that every row of the snapshot has."""
    if column not in row.values:
        raise RowError(
            f'{row.location}: expected "{column}", found {", ".join(row.values) or "no columns"}',
            advice=f"the columns of the snapshot are {', '.join(COLUMNS)}",
        )
    return row.values[column]


def _single_spaced(row: Row, column: str) -> str:
    """A title or an abstract with single spaces; "" if it is missing."""
    text = optional_text(_value(row, column), column, row.location)
    return " ".join(text.split())


def _categories(row: Row) -> Categories:
    """Categories of a paper: names with spaces between them, or a list."""
    value = _value(row, "categories")
    names = (value or "").split() if isinstance(value, str | None) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise RowError(
            f'{row.location}: "categories" must be names with spaces between them or '
            f"a list of names, got {value_kind(value)}"
        )
    return tuple(names)


def _read_papers(source: Path, census: _Census, section: ArxivSection, watch: Watch) -> Iterator[Paper]:
    """Papers with a small category, in file order."""
    small = census.small_categories(section.max_category_size)
    for number, row in enumerate(read_rows(source), 1):
        categories = _categories(row)
        if not small.isdisjoint(categories):
            paper_id = id_value(row.values["id"], "id", row.location)
            title, abstract = _single_spaced(row, "title"), _single_spaced(row, "abstract")
            yield Paper(paper_id, title, abstract, first_sentence_end(abstract), categories, row.location)
        if number % PROGRESS_ROWS == 0 or number == census.papers:
            watch.progress("reading papers", number, census.papers)


def _select(
    read: Iterator[Paper], census: _Census, section: ArxivSection, writer: DatasetWriter
) -> list[Paper]:
    """Papers with a query and a document of their own, sorted by id; skipped papers are noted."""
    papers, faults = list(read), FileFaults()
    ids = UniqueNames("id", faults)
    for paper in papers:
        ids.add(paper.paper_id, paper.location)
    faults.raise_if_any()
    # Results must not depend on the order of the file.
    papers.sort(key=attrgetter("paper_id"))
    limit = section.max_category_size
    small = len(census.small_categories(limit))
    writer.note(
        f"{len(papers):,} of {census.papers:,} papers have a category of at most "
        f"{limit:,} papers; categories of that size: {small}"
    )
    skipped = SkipCounts("papers with a small category")
    incomplete = "an abstract of one sentence or none"
    if section.flavour == "title":
        incomplete = "no title or no abstract"
    selected: dict[str, Paper] = {}
    for paper in papers:
        skipped.count()
        if not (paper.query(section) and paper.document(section)):
            skipped.skip(incomplete)
        elif selected.setdefault(paper.document(section), paper) is not paper:
            skipped.skip("the text of another")
    skipped.write_notes(writer)
    if len(selected) < 2:
        raise DataError(
            f"arxiv.max_category_size must leave at least two usable papers, {limit:,} leaves "
            f"{len(selected)}; raise it, or name a larger source"
        )
    return list(selected.values())


def _assign_files(
    papers: Sequence[Paper], section: ArxivSection, writer: DatasetWriter
) -> dict[str, Bool[np.ndarray, " n"]]:
    """The papers whose queries each file holds."""
    is_train = np.zeros(len(papers), dtype=np.bool_)
    if section.train_fraction:
        queries = [paper.query(section) for paper in papers]
        is_train[held_out_queries(queries, section.train_fraction, len(papers))] = True
    files = {"train": is_train, "test": ~is_train}
    unknown = []
    for prefix, name in section.narrow_names().items():
        narrow = np.zeros(len(papers), dtype=np.bool_)
        for row, paper in enumerate(papers):
            narrow[row] = any(category.startswith(prefix) for category in paper.categories)
        if not narrow.any():
            unknown.append(prefix)
        files |= {f"narrow-{name}": narrow, f"test-without-{name}": ~is_train & ~narrow}
    if unknown:
        raise DataError(
            "arxiv.narrow must be prefixes of categories that papers have, such as cs. or math.CO, "
            f"no paper has {', '.join(unknown)}; correct them"
        )
    for stem, rows in files.items():
        if not rows.any() and (stem != "train" or section.train_fraction):
            writer.note(f"{stem} has no papers and was not written")
    return files


def _negatives(
    papers: Sequence[Paper], census: _Census, settings: ArxivSettings, writer: DatasetWriter, watch: Watch
) -> Int64[np.ndarray, "n 21"]:
    """Rows of the negatives of each paper, in the order of difficulty."""
    watch.note(f"counting the words of {len(papers):,} abstracts")
    # Whole abstracts, in both flavours.
    bags = count_words(paper.abstract for paper in papers)
    groups = groups_of([sort_by_size(paper.categories, census.sizes) for paper in papers])
    nearest = nearest_of_groups(bags, groups, NEAREST, watch=watch)
    # A list that is too short ends with its last paper twice.
    distinct = int((nearest[:, -2] != nearest[:, -1]).sum())
    writer.note(
        f"{distinct:,} of {len(papers):,} papers ({distinct / len(papers):.1%}) have {NEAREST} distinct "
        "nearest papers; for the others the last is repeated"
    )
    return np.concatenate([nearest, random_others(len(papers), seed=settings.run.seed)[:, None]], axis=1)


def random_others(count: int, *, seed: int) -> Int64[np.ndarray, " n"]:
    """Draw for each row one of the other rows, all equally likely."""
    # One number fewer than there are papers: those from the paper's own on move up by one.
    draws = np.random.default_rng(seed).integers(0, count - 1, count)
    return draws + (draws >= np.arange(count))


def _write(
    papers: Sequence[Paper],
    negatives: Int64[np.ndarray, "n 21"],
    files: Mapping[str, Bool[np.ndarray, " n"]],
    section: ArxivSection,
    writer: DatasetWriter,
    watch: Watch,
) -> None:
    """Write documents, and each paper to every file that it belongs to."""
    documents = [writer.document(paper.paper_id, paper.document(section)) for paper in papers]
    for row, paper in enumerate(papers):
        query = {"query_id": paper.paper_id, "query": paper.query(section), "pos": [documents[row]]}
        listed = [documents[other] for other in negatives[row].tolist()]
        for stem, rows in files.items():
            if rows[row]:
                writer.example(stem, {**query, "neg": listed})
                for difficulty in section.difficulties:
                    alone = {**query, "neg": [listed[difficulty - 1]]}
                    writer.example(f"{stem}-difficulty-{difficulty:02}", alone)
        if (row + 1) % PROGRESS_ROWS == 0 or row + 1 == len(papers):
            watch.progress("writing papers", row + 1, len(papers))
