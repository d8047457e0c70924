"""MS MARCO: queries with their answers and with passages that look like answers (mission A10; source, appendix A).

Made from either of two sources:

- *A file of triplets*, as the source used it: JSON lines ``{"query": ..., "pos": [...], "neg": [...]}`` of texts
  (``msmarco-triplets.jsonl.gz`` of the data sets for training embeddings). Its first samples make ``train``, the next ``dev``, the last
  ``test``; ``test-65negatives`` holds those of ``test`` that list at least 65.
- *A folder with the publisher's own files*, which `adiabat.makers.msmarco_files` reads; they keep their splits.

``triples.train.small.tsv`` is neither: it names each query about a hundred times in random order, so that no cut of it keeps the queries of
one part out of the others.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from adiabat.config.makers import MsmarcoSection, MsmarcoSettings
from adiabat.config.section import defaults_of
from adiabat.data.columns import Columns, first_of, parsed_rows
from adiabat.data.examples import parse_example
from adiabat.data.records import Example, text_id
from adiabat.data.tables import FileFaults, count_rows, read_rows, require_path, table_form
from adiabat.errors import ConfigError, DataError, several
from adiabat.makers.dropping import Tally
from adiabat.makers.msmarco_files import Listed, judged_queries, write_passages
from adiabat.makers.seen import Seen
from adiabat.makers.writing import Made, Output, writing
from adiabat.watch import SILENT, Watch

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
