"""*arxiv-negatives*: papers of arXiv, each with 21 others that are not it, from the most alike to a random one (Vasilyev et al. 2024).

The source is the metadata snapshot of arXiv: JSON lines with ``id``, ``title``, ``abstract`` and ``categories`` (names with spaces between
them, or a list); other keys are ignored. It is read twice, first for the sizes of the categories, and only papers that are kept stay in
memory, about 2 KB each.

- *Papers*: those with a category of at most 10,000 papers, counted over the whole snapshot.
- *Difficulty 1 to 20*: each paper's categories are sorted from small to large; of the papers whose lists share the longest beginning with
  its own (one other paper is enough), the 20 closest by Jensen-Shannon distance between the words of the abstracts, the closest first;
  where there are fewer, the last one again. *Difficulty 21*: any other paper, drawn at random, perhaps one of the 20. An example lists
  its negatives in this order, so negative number d is that of difficulty d.
- *Flavour title*: the title asks for the abstract. *Flavour first*: the first sentence of the abstract asks for the rest of it, and
  negatives lose their first sentence too; an abstract of one sentence has no rest and is left out.
- Texts are single-spaced. Of papers with the same document text, such as one that was submitted twice, the one of the lowest id stays: the
  others would be negatives that answer the query.

Everything goes by ids, not by the order of the file: papers are sorted by id, equally close ones come by id, and the random paper of each
follows from the seed and the ids that were kept.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from adiabat.config.dataset_settings import ArxivSection, ArxivSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import RowError, first_of, id_value, parsed_rows, value_kind
from adiabat.data.example_stream import held_out_queries
from adiabat.data.table_rows import FileFaults, Row, read_rows
from adiabat.datasets.neighbours import Categories, count_words, from_small_to_large, groups_of, nearest_of_groups
from adiabat.datasets.writer import Made, Output, Tally, writing

_END = re.compile(r"""(?P<mark>[.!?…؟۔।॥]+)[)\]}"'”’»]*(?=\s)|[。！？｡]+[」』”’）]*|\n[^\S\n]*\n""")
_OPENERS = re.compile(r"""[\s(\[{"'“‘«„¿¡]*""")
_LETTER = re.compile(r"\w")
_LAST_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*$")
_WORD_CHARACTERS = 40
"""Looked at before a full stop: longer than any word of the two lists."""
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
    """Cut a text into sentences."""
    bounds = [0]
    for match in _END.finditer(text):
        if _ends(text, match) and _LETTER.search(text, bounds[-1], match.end()):
            bounds.append(match.end())
    if len(bounds) > 1 and not _LETTER.search(text, bounds[-1]):
        bounds.pop()  # A dot that stands alone at the end goes with the last sentence.
    spans = [_trimmed(text, *span) for span in pairwise([*bounds, len(text)])]
    return [(start, end) for start, end in spans if start < end]


def _ends(text: str, match: re.Match[str]) -> bool:
    mark = match["mark"]
    if mark is None:
        return True
    opened = _OPENERS.match(text, match.end())
    following = text[opened.end() : opened.end() + 1] if opened else ""
    return not following.islower() and (mark != "." or not _is_short(text, match.start(), following))


def _is_short(text: str, end: int, following: str) -> bool:
    """Whether the full stop at `end` marks a word that is cut short."""
    found = _LAST_WORD.search(text[max(0, end - _WORD_CHARACTERS) : end])
    if found is None:
        return False
    word = found[0]
    if "." in word or (len(word) == 1 and word.isupper()):
        return True
    return bool(_BEFORE_NAMES.fullmatch(word) or (following.isdigit() and _BEFORE_NUMBERS.fullmatch(word)))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return end - len(part.lstrip()), start + len(part.rstrip())


COLUMNS = ("id", "title", "abstract", "categories")
"""Of the snapshot, as far as they are read."""

NEAREST = 20
"""Negatives chosen by distance; one more is random."""

ROWS_PER_NEWS = 10_000
"""Rows read between two words on how far it is."""


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of the snapshot.

    Attributes:
        paper_id: Such as ``math/0511658``.
        title: "" where the snapshot has none.
        abstract: "" likewise.
        cut: Where its first sentence ends.
        categories: As listed.
        place: ``file:line``.
    """

    paper_id: str
    title: str
    abstract: str
    cut: int
    categories: Categories
    place: str

    def query(self, section: ArxivSection) -> str:
        """What asks for the paper.

        Returns:
            "" where the paper has no such text.
        """
        return self.title if section.flavour == "title" else self.abstract[: self.cut]

    def document(self, section: ArxivSection) -> str:
        """What is asked for.

        Returns:
            "" where the paper has no such text.
        """
        return self.abstract if section.flavour == "title" else self.abstract[self.cut :].lstrip()


@dataclass(frozen=True, slots=True)
class _Census:
    """What the first reading of a snapshot tells.

    Attributes:
        rows: Papers in all.
        sizes: Papers of each category.
    """

    rows: int
    sizes: Mapping[str, int]

    def small(self, most: int) -> set[str]:
        return {category for category, size in self.sizes.items() if size <= most}


def make_arxiv(source: Path, out: Path, settings: ArxivSettings, *, watch: Watch = SILENT) -> Made:
    """Make *arxiv-negatives* in one flavour.

    Writes ``corpus.jsonl.gz``, ``test.jsonl.gz`` with 21 negatives per paper, from hard to easy, and for each difficulty asked for the
    same with that negative alone: ``test-difficulty-21.jsonl.gz`` is what the source measures on. With `ArxivSection.train_fraction`
    also ``train``; for each of `ArxivSection.narrow`, such as ``math.``, papers with such a category in ``narrow-math``, to tune on,
    and those of ``test`` without any in ``test-without-math``, to measure on.
    """
    section = settings.arxiv
    with writing(out, maker="arxiv-negatives", source=source, settings=settings, documents=section.documents) as output:
        census = _taken(source, watch)
        papers = _chosen(_read_papers(source, census, section, watch), census, section, output)
        files = _files(papers, section, output)
        negatives = _negatives(papers, census, settings, output, watch)
        _write(papers, negatives, files, section, output, watch)
        return output.made


def first_sentence_end(abstract: str) -> int:
    """Find the end of an abstract's first sentence, which does not lie inside a formula."""
    paired = _dollars(abstract) % 2 == 0
    ends = (end for _, end in sentence_spans(abstract))
    return next((end for end in ends if not paired or _dollars(abstract[:end]) % 2 == 0), len(abstract))


def _dollars(text: str) -> int:
    return text.replace(r"\$", "").count("$")


def _taken(source: Path, watch: Watch) -> _Census:
    """The census of a snapshot that is found to be sound."""
    watch.note(f"counting the papers of each category in {source}")
    faults = FileFaults()
    sizes: Counter[str] = Counter()
    rows = 0
    first, every = first_of(read_rows(source, faults=faults), faults, source)
    if absent := [column for column in COLUMNS if column not in first.values]:
        # Another file altogether: to name its every row would say no more.
        raise DataError(
            f"{source} must be the metadata snapshot, whose rows have {', '.join(COLUMNS)}, got {', '.join(first.values) or 'no columns'}: "
            f"{', '.join(absent)} missing; name that file"
        )
    for categories in parsed_rows(every, faults, _parse_checked):
        sizes.update(set(categories))
        rows += 1
    faults.raise_if_any()
    return _Census(rows, sizes)


def _parse_checked(number: int, row: Row) -> Categories:
    """Categories of a row whose other columns are sound too."""
    del number
    id_value(_value(row, "id"), "id", row.place)
    for column in ("title", "abstract"):
        _text(row, column)
    return _categories(row)


def _value(row: Row, column: str) -> object:
    if column not in row.values:
        raise RowError(
            f'{row.place}: expected "{column}", found {", ".join(row.values) or "no columns"}',
            advice=f"the columns of the snapshot are {', '.join(COLUMNS)}",
        )
    return row.values[column]


def _text(row: Row, column: str) -> str:
    """Single-spaced; "" where there is none."""
    value = _value(row, column)
    if not isinstance(value, str | None):
        raise RowError(f'{row.place}: "{column}" must be a text, got {value_kind(value)}')
    text = " ".join((value or "").split())
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowError(f'{row.place}: "{column}" must be Unicode text, got half of a surrogate pair') from error
    return text


def _categories(row: Row) -> Categories:
    value = _value(row, "categories")
    listed = (value or "").split() if isinstance(value, str | None) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) and one for one in listed):
        raise RowError(f'{row.place}: "categories" must be names with spaces between them or a list of names, got {value_kind(value)}')
    return tuple(listed)


def _read_papers(source: Path, census: _Census, section: ArxivSection, watch: Watch) -> Iterator[Paper]:
    """Papers with a small category, in file order."""
    small = census.small(section.max_category_size)
    for number, row in enumerate(read_rows(source), 1):
        categories = _categories(row)
        if not small.isdisjoint(categories):
            paper_id, abstract = id_value(row.values["id"], "id", row.place), _text(row, "abstract")
            yield Paper(paper_id, _text(row, "title"), abstract, first_sentence_end(abstract), categories, row.place)
        if number % ROWS_PER_NEWS == 0 or number == census.rows:
            watch.progress("reading papers", number, census.rows)


def _chosen(read: Iterator[Paper], census: _Census, section: ArxivSection, output: Output) -> list[Paper]:
    """Papers that have what the flavour asks for, each document text once, by id; what is left out is noted."""
    papers = sorted(read, key=lambda paper: paper.paper_id)
    _require_unique(papers)
    most = section.max_category_size
    small = len(census.small(most))
    output.note(f"{len(papers):,} of {census.rows:,} papers have a category of at most {most:,} papers; categories of that size: {small}")
    tally = Tally("papers with a small category")
    chosen: dict[str, Paper] = {}
    for paper in papers:
        tally.take()
        if not (paper.query(section) and paper.document(section)):
            tally.drop("no title or no abstract" if section.flavour == "title" else "an abstract of one sentence or none")
        elif chosen.setdefault(paper.document(section), paper) is not paper:
            tally.drop("the text of another")
    tally.tell(output)
    if len(chosen) < 2:
        raise DataError(
            f"arxiv.max_category_size must leave at least two papers of use, {most:,} leaves {len(chosen)}; "
            "raise it, or name a larger source"
        )
    return list(chosen.values())


def _require_unique(papers: Sequence[Paper]) -> None:
    faults = FileFaults()
    for paper, after in pairwise(papers):
        if paper.paper_id == after.paper_id:
            faults.add(f'{after.place}: id must be unique, got "{after.paper_id}" again, first at {paper.place}')
    faults.raise_if_any()


def _files(papers: Sequence[Paper], section: ArxivSection, output: Output) -> dict[str, Bool[np.ndarray, " n"]]:
    """Which papers ask in which file."""
    tuned = np.zeros(len(papers), dtype=np.bool_)
    if section.train_fraction:
        tuned[held_out_queries([paper.query(section) for paper in papers], section.train_fraction, len(papers))] = True
    files = {"train": tuned, "test": ~tuned}
    for prefix, name in section.narrow_names().items():
        having = np.array([any(category.startswith(prefix) for category in paper.categories) for paper in papers])
        files |= {f"narrow-{name}": having, f"test-without-{name}": ~tuned & ~having}
    _require_narrow(papers, [prefix for prefix, name in section.narrow_names().items() if not files[f"narrow-{name}"].any()])
    for stem, rows in files.items():
        if not rows.any() and (stem != "train" or section.train_fraction):
            output.note(f"{stem} has no papers and was not written")
    return files


def _require_narrow(papers: Sequence[Paper], empty: Sequence[str]) -> None:
    if empty:
        known = Counter(category.partition(".")[0] for paper in papers for category in set(paper.categories))
        raise DataError(
            f"arxiv.narrow must be beginnings of categories that papers have, no paper has {', '.join(empty)}; "
            f"the most frequent begin with {', '.join(name for name, _ in known.most_common(8))}"
        )


def _negatives(
    papers: Sequence[Paper], census: _Census, settings: ArxivSettings, output: Output, watch: Watch
) -> Int64[np.ndarray, "n 21"]:
    """Rows of the negatives of each paper, in the order of difficulty."""
    watch.note(f"counting the words of {len(papers):,} abstracts")
    bags = count_words(paper.abstract for paper in papers)
    groups = groups_of([from_small_to_large(paper.categories, census.sizes) for paper in papers])
    near = nearest_of_groups(bags, groups, NEAREST, watch=watch)
    different = int((near[:, -2] != near[:, -1]).sum())
    share = f"{different / len(papers):.1%}"
    output.note(
        f"{different:,} of {len(papers):,} papers ({share}) have {NEAREST} different nearest papers; for the others the last is repeated"
    )
    return np.concatenate([near, random_others(len(papers), seed=settings.run.seed)[:, None]], axis=1)


def random_others(count: int, *, seed: int) -> Int64[np.ndarray, " n"]:
    """Draw for each row one of the others, all equally likely."""
    drawn = np.random.default_rng(seed).integers(0, count - 1, count)
    return drawn + (drawn >= np.arange(count))


def _write(
    papers: Sequence[Paper],
    negatives: Int64[np.ndarray, "n 21"],
    files: Mapping[str, Bool[np.ndarray, " n"]],
    section: ArxivSection,
    output: Output,
    watch: Watch,
) -> None:
    names = [output.document(paper.paper_id, paper.document(section)) for paper in papers]
    for row, paper in enumerate(papers):
        asked = {"query_id": paper.paper_id, "query": paper.query(section), "pos": [names[row]]}
        others = [names[other] for other in negatives[row].tolist()]
        for stem in (stem for stem, rows in files.items() if rows[row]):
            output.example(stem, {**asked, "neg": others})
            for difficulty in section.difficulties:
                output.example(f"{stem}-difficulty-{difficulty:02}", {**asked, "neg": [others[difficulty - 1]]})
        if (row + 1) % ROWS_PER_NEWS == 0 or row + 1 == len(papers):
            watch.progress("writing papers", row + 1, len(papers))
