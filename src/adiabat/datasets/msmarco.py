"""MS MARCO: queries with their answers and with passages that look like answers (Vasilyev et al. 2024, appendix A).

Made from either of two sources:

- *A file of triplets*, as the source used it: JSON lines ``{"query": ..., "pos": [...], "neg": [...]}`` of texts
  (``msmarco-triplets.jsonl.gz`` of the data sets for training embeddings). Its first samples make ``train``, the next ``dev``, the last
  ``test``; ``test-65negatives`` holds those of ``test`` that list at least 65.
- *A folder with the publisher's own files*, which `adiabat.datasets.msmarco` reads; they keep their splits.

``triples.train.small.tsv`` is neither: it names each query about a hundred times in random order, so that no cut of it keeps the queries of
one part out of the others.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adiabat.config.dataset_settings import MsmarcoSection, MsmarcoSettings
from adiabat.config.section import defaults_of
from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.data.columns import Columns, RowError, first_of, parsed_rows, text_value
from adiabat.data.examples import parse_example
from adiabat.data.records import Example, text_id
from adiabat.data.table_rows import FileFaults, count_rows, read_rows, require_path, table_form
from adiabat.datasets.json_streams import tab_rows
from adiabat.datasets.writer import Made, Output, Seen, Tally, writing

_PACKINGS = ("", ".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Listed:
    """One query with the numbers of its passages.

    Attributes:
        query_id: The publisher's.
        text: The query.
        positives: Relevant passages, at least one.
        negatives: Others, perhaps none.
    """

    query_id: str
    text: str
    positives: "array[int]"
    negatives: "array[int]"


def judged_queries(folder: Path, *, most_negatives: int, first: bool, watch: Watch) -> dict[str, list[Listed]]:
    """Queries of every split that the folder judges.

    Args:
        most_negatives: Kept per query.
    """
    judgements = {path.name.removeprefix("qrels.").partition(".tsv")[0]: path for path in _tables(folder, "qrels.*")}
    if not judgements:
        raise DataError(f"{folder} must hold qrels.SPLIT.tsv, got none; check that it is the folder of MS MARCO's own files")
    faults = FileFaults()
    splits = {}
    for split, path in judgements.items():
        single = first and split.startswith("train")
        relevant = _relevant(path, faults, watch)
        listed = _negatives(folder, split, relevant, 1 if single else most_negatives, faults, watch)
        texts = _texts(folder, split, relevant, faults, watch)
        splits[split] = [
            Listed(query_id, texts[query_id], passages[:1] if single else passages, listed.get(query_id, array("Q")))
            for query_id, passages in relevant.items()
            if query_id in texts
        ]
    faults.raise_if_any()
    return splits


def write_passages(folder: Path, queries: Iterable[Listed], output: Output, watch: Watch) -> None:
    """Write the passages that queries name, in the collection's order."""
    wanted = {number for query in queries for numbers in (query.positives, query.negatives) for number in numbers}
    faults, total = FileFaults(), 0
    named = len(wanted)
    path = _table(folder, "collection.tsv")
    for place, (passage_id, text) in tab_rows(path, 2, faults, watch=watch):
        total += 1
        try:
            number = _number(passage_id, place)
            if number in wanted:
                output.document(str(number), text_value(text, "passage", place))
                wanted.discard(number)
        except RowError as fault:
            faults.add(str(fault))
    if not faults.count:  # A passage whose own line is at fault would be reported twice.
        for number in sorted(wanted):
            faults.add(f'{path} must hold every passage that is named, got none with the id "{number}"')
    faults.raise_if_any()
    output.note(f"{named:,} of {total:,} passages written: those that a query names")


def _relevant(path: Path, faults: FileFaults, watch: Watch) -> dict[str, "array[int]"]:
    relevant: dict[str, array[int]] = {}
    for place, (query_id, _, passage_id, grade) in tab_rows(path, 4, faults, watch=watch):
        try:
            number, is_relevant = _number(passage_id, place), _number(grade, place) > 0
        except RowError as fault:
            faults.add(str(fault))
            continue
        if is_relevant and number not in (passages := relevant.setdefault(query_id, array("Q"))):
            passages.append(number)
    return relevant


def _texts(folder: Path, split: str, relevant: Mapping[str, "array[int]"], faults: FileFaults, watch: Watch) -> dict[str, str]:
    path = _table(folder, f"queries.{split}.tsv")
    texts: dict[str, str] = {}
    for place, (query_id, text) in tab_rows(path, 2, faults, watch=watch):
        try:
            if query_id in relevant and texts.setdefault(query_id, text_value(text, "query", place)) != text:
                faults.add(f'{place}: query id must be unique, got "{query_id}" again')
        except RowError as fault:
            faults.add(str(fault))
    if not faults.count:
        for query_id in (query_id for query_id in relevant if query_id not in texts):
            faults.add(f'{path} must hold every query that is judged, got none with the id "{query_id}"')
    return texts


def _negatives(
    folder: Path, split: str, relevant: Mapping[str, "array[int]"], most: int, faults: FileFaults, watch: Watch
) -> dict[str, "array[int]"]:
    """The first passages listed for each judged query that are not relevant to it."""
    negatives: dict[str, array[int]] = {}
    for place, query_id, passage_id in _candidates(folder, split, faults, watch):
        listed = negatives.setdefault(query_id, array("Q")) if query_id in relevant else None
        if listed is None or len(listed) >= most:
            continue
        try:
            number = _number(passage_id, place)
        except RowError as fault:
            faults.add(str(fault))
            continue
        if number not in relevant[query_id] and number not in listed:
            listed.append(number)
    return negatives


def _candidates(folder: Path, split: str, faults: FileFaults, watch: Watch) -> Iterator[tuple[str, str, str]]:
    """Place, query id and passage id of each line of the files that list negatives."""
    for name in dict.fromkeys((split, split.partition(".")[0])):
        ranked, triples = _tables(folder, f"top1000.{name}", f"top1000.{name}.tsv"), _tables(folder, f"qidpidtriples.{name}.*")
        for path in ranked:
            yield from ((place, fields[0], fields[1]) for place, fields in tab_rows(path, 4, faults, watch=watch))
        for path in triples:
            yield from ((place, fields[0], fields[2]) for place, fields in tab_rows(path, 3, faults, watch=watch))
        if ranked or triples:
            return


def _number(text: str, place: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RowError(f"{place} must name a passage and its relevance by whole numbers, got {text or 'nothing'}")
    return int(text)


def _table(folder: Path, name: str) -> Path:
    paths = _tables(folder, name)
    if not paths:
        raise DataError(f"{folder} must hold {name} (plain, .gz or .zst), got none; put it beside the judgements")
    return paths[0]


def _tables(folder: Path, *patterns: str) -> list[Path]:
    """Files whose name fits, packed or not; of one that is there both ways, the plain one."""
    paths = [path for pattern in patterns for packing in _PACKINGS for path in sorted(folder.glob(pattern + packing))]
    return list({path.name.removesuffix(".gz").removesuffix(".zst"): path for path in reversed(paths) if path.is_file()}.values())[::-1]


_REPORT_EVERY = 1_000


def make_msmarco(source: Path, out: Path, settings: MsmarcoSettings, *, watch: Watch = SILENT) -> Made:
    """Make examples of queries and passages, in memory for the ids alone.

    Samples without negatives are left out of what is cut from a file of triplets, and a negative that is also a positive is no negative.

    Args:
        out: A new or empty directory.
    """
    require_path(source)
    section = settings.msmarco
    _refuse_idle(section, source)
    with writing(out, maker="msmarco", source=source, settings=settings, documents=section.documents) as output:
        if source.is_dir():
            _from_folder(source, output, section, watch)
        else:
            _from_triplets(source, output, section, watch)
    return output.made


def part_of(number: int, total: int, section: MsmarcoSection) -> str | None:
    """Which file a sample of a file of triplets belongs to.

    Returns:
        ``train`` for the first, ``dev`` for the next, ``test`` for the last, None for those between.
    """
    if number < section.train:
        return "train"
    if number < section.train + section.dev:
        return "dev"
    return "test" if number >= total - section.test else None


def _refuse_idle(section: MsmarcoSection, source: Path) -> None:
    """Refuse settings that mean nothing for the source at hand."""
    idle = ("train", "dev", "test") if source.is_dir() else ("most_negatives",)
    defaults = defaults_of(MsmarcoSection)
    kind = "a folder of the publisher's files" if source.is_dir() else "a file of triplets"
    faults = [f"msmarco.{name} has no effect with {kind}; leave it out" for name in idle if getattr(section, name) != defaults[name]]
    if source.is_dir() and section.documents == "texts":
        faults.append('msmarco.documents must be "ids" with a folder of the publisher\'s files, got "texts"; their passages have ids')
    if faults:
        raise ConfigError(several(faults))


def _from_triplets(source: Path, output: Output, section: MsmarcoSection, watch: Watch) -> None:
    total = _count(source, section)
    faults, tally, asked, again = FileFaults(), Tally("samples"), Seen(), 0
    for number, example in enumerate(_samples(source, faults)):
        if number % _REPORT_EVERY == 0:
            watch.progress("samples", number, total)
        part = part_of(number, total, section)
        tally.take()
        if part is None:
            tally.drop("between the last to validate on and the first to measure on")
            continue
        is_new = asked.add(example.query)
        again += part != "train" and not is_new
        _write(output, part, example, section, tally)
    faults.raise_if_any()
    tally.tell(output)
    if again:
        output.note(f"{again:,} samples of dev and test ask what a sample before them asks")


def _count(source: Path, section: MsmarcoSection) -> int:
    """The number of samples, which tells where the last ones begin."""
    if table_form(source) in ("tsv", "csv"):
        raise DataError(
            f"{source} must be a file of triplets (JSON lines with query, pos and neg), or a folder with collection.tsv, "
            "queries.SPLIT.tsv and qrels.SPLIT.tsv, got a table; name one of these"
        )
    total = count_rows(source) or 0
    wanted = section.train + section.dev + section.test
    if total < wanted:
        raise DataError(
            f"{source} must hold at least msmarco.train + msmarco.dev + msmarco.test = {wanted:,} samples, got {total:,}; lower these"
        )
    return total


def _samples(source: Path, faults: FileFaults) -> Iterator[Example]:
    columns = Columns()
    first, rows = first_of(read_rows(source, faults=faults), faults, source)
    columns.layout(first, wanted=("examples",))
    return parsed_rows(rows, faults, partial(parse_example, columns=columns))


def _write(output: Output, part: str, example: Example, section: MsmarcoSection, tally: Tally) -> None:
    positives = list(dict.fromkeys(example.positives))
    negatives = [text for text in dict.fromkeys(example.negatives) if text not in positives]
    if not negatives:
        tally.drop("without negatives")
        return
    if part != "test" and section.pairs == "first":
        positives, negatives = positives[:1], negatives[:1]
    good, bad = ([output.document(text_id(text), text) for text in texts] for texts in (positives, negatives))
    for stem in _stems(part, len(negatives), section, measured=part == "test"):
        output.triplet(stem, example.query_id, example.query, positives=good, negatives=bad)


def _stems(part: str, negatives: int, section: MsmarcoSection, *, measured: bool) -> list[str]:
    subset = f"{part}-{section.subset_negatives}negatives"
    return [part, subset] if measured and negatives >= section.subset_negatives else [part]


def _from_folder(source: Path, output: Output, section: MsmarcoSection, watch: Watch) -> None:
    splits = judged_queries(source, most_negatives=section.most_negatives, first=section.pairs == "first", watch=watch)
    write_passages(source, (query for queries in splits.values() for query in queries), output, watch)
    for split, queries in splits.items():
        _write_split(output, split, queries, section)


def _write_split(output: Output, split: str, queries: list[Listed], section: MsmarcoSection) -> None:
    for query in queries:
        for stem in _stems(split, len(query.negatives), section, measured=not split.startswith("train")):
            positives, negatives = ([str(number) for number in numbers] for numbers in (query.positives, query.negatives))
            output.triplet(stem, query.query_id, query.text, positives=positives, negatives=negatives)
    bare = sum(not query.negatives for query in queries)
    if bare:
        output.note(f"{split}: {bare:,} of {len(queries):,} queries list no negatives: no file beside the judgements names any")
