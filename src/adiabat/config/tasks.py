"""Settings of ``adiabat evaluate --suite``, ``adiabat compare`` and ``adiabat space``; the suites that come with adiabat."""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from adiabat.config.section import DropSameId, PlacedError, Section, Text, Texts
from adiabat.config.shared import ColumnsSection, DataSection, EncoderSection, RankingEncoderSection, RankingMeasureSection, RunSection
from adiabat.config.validation import Need, shown
from adiabat.core.errors import ConfigError

Towers = Literal["query", "document"]


class NamedTask(Section):
    """What every task has."""

    name: Text | None = None
    """For tables; None takes that of the data."""


class TaskSection(Section):
    """One of ``[[tasks]]``: queries, and the corpus that every trained model embeds to be measured on them."""

    data: Text
    """Queries with positives: a BEIR folder, a file, or a data set of the hub."""
    name: Text | None = None
    """For tables; None takes that of the data."""
    corpus: Text | None = None
    """Documents; None takes a BEIR folder's own, and otherwise the documents that the examples list as texts."""
    split: Text | None = None
    corpus_split: Text | None = None
    """Of a corpus of the hub that has several."""
    columns: ColumnsSection = ColumnsSection()
    missing: Literal["error", "drop"] = "error"
    """What to do with documents that are not in the corpus."""
    blank: Literal["error", "drop"] = "error"
    """What to do with documents of the corpus that have neither title nor text."""

    @model_validator(mode="after")
    def _split_is_of_something(self) -> Self:
        if self.corpus_split is not None and self.corpus is None:
            raise ValueError("tasks.corpus_split has no effect without tasks.corpus; leave it out, or set tasks.corpus too")
        return self


class RetrievalTask(TaskSection):
    """Queries ranked against a whole corpus, or (``triplets``) against the candidates that each of them lists."""

    kind: Literal["retrieval", "triplets"]
    measures: Annotated[Texts, Field(min_length=1)] | None = None
    """None takes ``measure.measures``. The first carries the verdict of a retrieval task, PND that of triplets."""
    stores: Texts = ()
    """Directories of stores of the same corpus: one that a model's document tower made is read, and nothing is embedded for that model."""
    drop_same_id: DropSameId | None = None
    """Whether a document of the query's own id is left out; None takes ``measure.drop_same_id``. Triplets have no such document."""

    @model_validator(mode="after")
    def _a_corpus_is_ranked(self) -> Self:
        if self.kind == "triplets" and self.drop_same_id is not None:
            fault = "must be left out with kind = triplets, whose queries rank what they list"
            raise PlacedError("drop_same_id", f"{fault}, got {shown(self.drop_same_id)}; leave it out")
        return self


class NliGridTask(NamedTask):
    """Sentence pairs with labels in several languages: entailment should be closer than neutral and contradiction."""

    kind: Literal["nli_grid"]
    data: Text
    languages: Texts = ()
    """Empty takes all that every pair has."""


class QuestionGridTask(NamedTask):
    """Questions in several languages against the paragraphs of one language at a time, each language with each."""

    kind: Literal["question_grid"]
    data: Text
    """Questions: a text for each language, and in `key` the paragraph that answers them."""
    corpus: Text
    """Paragraphs: a text for each language, and in `key` their name."""
    key: Text = "para"
    """Column that the two files share."""
    languages: Texts = ()
    """Empty takes all that both files have."""


class FilteredTask(NamedTask):
    """A task whose data is a table, of which only some rows may be wanted."""

    data: Text
    split: Text | None = None
    """Of a hub data set that has several."""
    where: Mapping[str, str] = {}
    """Only rows of `data` with these values in these columns, such as ``{ lang = "de", split = "test" }``."""


class TextsTask(FilteredTask):
    """A task of texts on an equal footing: no side asks, none answers."""

    side: Towers = "query"
    """Whose tower and prompt embeds them."""


class StsTask(TextsTask):
    """Pairs of texts with a similarity that people gave: Spearman's rank correlation."""

    kind: Literal["sts"]
    a: Text = "a"
    b: Text = "b"
    score: Text = "score"


class WordsTask(TextsTask):
    """Pairs of words with a similarity that people gave, in one set or several: the mean of the sets' rank correlations."""

    kind: Literal["words"]
    a: Text = "a"
    b: Text = "b"
    score: Text = "score"
    set: Text | None = "set"
    """Column that tells the sets apart; none means one set."""


class PairClassificationTask(TextsTask):
    """Pairs of texts that belong together, or do not: average precision of the similarity."""

    kind: Literal["pair_classification"]
    a: Text = "a"
    b: Text = "b"
    label: Text = "label"
    positive: Text = "1"
    """The label of pairs that belong together; all others do not."""


class BitextTask(TextsTask):
    """Parallel sentences: each should find its translation among all, both ways."""

    kind: Literal["bitext"]
    a: Text
    b: Text


class ClassificationTask(TextsTask):
    """Texts with labels: logistic regression on the vectors of `data` (training) tells those of `test`."""

    kind: Literal["classification"]
    test: Text
    test_split: Text | None = None
    test_where: Mapping[str, str] = {}
    """Likewise of `test`: `where` is of `data` alone. Rows of one table are told apart by a column that both give, with other values."""
    text: Text = "text"
    label: Text = "label"
    per_label: PositiveInt | None = None
    """Training texts of each label, drawn at random; None takes all."""
    regularization: PositiveFloat = 1.0
    """C of the regression."""

    @model_validator(mode="after")
    def _tests_on_other_rows(self) -> Self:
        told_apart = any(self.test_where.get(column, value) != value for column, value in self.where.items())
        if (self.data, self.split) == (self.test, self.test_split) and not told_apart:
            fault = "must keep the rows of test apart from those of data, which are of the same table"
            advice = "give a column of where another value here, or name test_split"
            raise PlacedError("test_where", f"{fault}, got {shown(self.test_where)} beside where = {shown(self.where)}; {advice}")
        return self


class ClusteringTask(TextsTask):
    """Texts with labels: V-measure of k-means, as many clusters as labels."""

    kind: Literal["clustering"]
    text: Text = "text"
    label: Text = "label"
    restarts: PositiveInt = 10
    """Of k-means; the tightest counts."""
    most: PositiveInt | None = None
    """Texts, drawn at random; None takes all."""


class MtebTask(NamedTask):
    """A task of the mteb library by its name, by mteb's own evaluator."""

    kind: Literal["mteb"]
    task: Text


AnyTask = Annotated[
    RetrievalTask
    | NliGridTask
    | QuestionGridTask
    | StsTask
    | WordsTask
    | PairClassificationTask
    | BitextTask
    | ClassificationTask
    | ClusteringTask
    | MtebTask,
    Field(discriminator="kind"),
]


class ModelSection(Section):
    """One of ``[[models]]``: a model by a name of its own, with overrides of its own."""

    name: Text
    model: Text
    """As on the command line: a hub name, a directory, a job, ``demo``, ``bm25`` or ``bm25:LANGUAGE`` (words cut to their stems)."""
    runs: Texts = ()
    """Further models that differ from `model` by their seed alone: values are means over all of them, intervals over seeds and units."""
    encoder: RankingEncoderSection = RankingEncoderSection()


class SuiteSection(Section):
    """``[suite]``: what the tables are called, and what every model is compared with."""

    name: Text = "suite"
    baseline: Text | None = None
    """Name of the model that the others are compared with; None compares each with the best of every task."""
    stores: Text | None = None
    """Directory where vectors of corpora are kept, for later suites too; None keeps them in the directory of the result."""


class RunsMeasureSection(Section):
    """``[measure]`` of two runs: the scores are there, and only what is said of them is open."""

    measures: Annotated[Texts, Field(min_length=1)] = ("nDCG@10", "RR", "AP", "P@1")
    """Of runs in the format of TREC, which hold no measures; names of the ir-measures grammar, the first carries the verdict."""
    ties: Literal["relevant_last", "trec_eval"] = "relevant_last"
    """Order of documents with equal scores in such a run: relevant ones last, or as trec_eval sorts them, by descending document id, with
    scores compared in 32 bits."""
    task: Text | None = None
    """What such a run was measured on, to be found beside kept scores; None takes the name of the judgements' file."""
    units: Literal["same", "common"] = "same"
    """What to do where one of the two lacks queries of the other: stop and count them, or compare on those that both have."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Of the bootstrap; signs are flipped as often."""


class CompareSettings(Section):
    """Everything that ``adiabat compare`` may be told."""

    measure: RunsMeasureSection = RunsMeasureSection()
    run: RunSection = RunSection()


class SuiteSettings(Section):
    """Everything that ``adiabat evaluate --suite`` may be told."""

    suite: SuiteSection = SuiteSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    """Of models that are named on the command line; those of ``[[models]]`` have their own."""
    measure: RankingMeasureSection = RankingMeasureSection()
    """Common to all tasks, whose kind says what is compared; `depth` and `drop_same_id` are of retrieval."""
    run: RunSection = RunSection()
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    models: Annotated[tuple[ModelSection, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        require_names("tasks", [task.name for task in self.tasks])
        require_names("models", [model.name for model in self.models])
        return self


def require_names(key: str, names: Sequence[str | None]) -> None:
    """Refuse what cannot be told apart in tables.

    Args:
        names: Of its members; None is no name.
    """
    if again := [name for name, count in Counter(filter(None, names)).items() if count > 1]:
        raise ValueError(f"{key} must have names of their own, got {', '.join(map(shown, again))} more than once; rename them")


ENDING = ".toml"


def suite_file(name: str) -> Path:
    """Where the settings of a suite are."""
    if Path(name).exists() or name.endswith(ENDING):
        return Path(name)
    known = named_suites()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"the suites that come with adiabat are {', '.join(known)}"
    raise ConfigError(f"--suite must be a TOML file or a suite that comes with adiabat, got {name}; {advice}")


def named_suites() -> dict[str, Path]:
    """The suites that come with adiabat.

    Returns:
        Name to file, sorted.
    """
    folder = Path(str(resources.files("adiabat.config") / "suites"))
    return {path.stem: path for path in sorted(folder.glob(f"*{ENDING}"))}


Sampled = Annotated[int, Field(ge=20, le=5_000)]
"""Tables of all pairs of a sample are held in memory: 200 MB at the most."""


class SpaceSection(Section):
    """``[space]``: sizes of the samples, and the map."""

    needs: ClassVar[Mapping[str, Need]] = {"map_queries": Need("map", (True,)), "perplexity": Need("map", (True,))}
    queries: Sampled = 2_000
    """Queries looked at, each with one positive, drawn at random where there are more."""
    documents: Sampled = 2_000
    """Documents of the store that speak for the document tower, drawn likewise."""
    pairs: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Pairs of a query and another one, or the other one's positive, drawn at random."""
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    """Of the cross-validated probe that tells query vectors from document vectors."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 2_000
    """Of the bootstrap."""
    drop_same_id: DropSameId = "auto"
    """Pass over the document that has the query's id: if their texts are equal too (auto), whatever its text (true), or never (false)."""
    map: bool = False
    """Whether both towers are drawn as a map (extra ``maps``)."""
    map_queries: PositiveInt = 500
    """Queries of the map, each with its positive; of those that are looked at."""
    perplexity: Annotated[PositiveFloat, Field(ge=2)] = 30.0
    """Of the map: about how many neighbours of a point count."""


class SpaceSettings(Section):
    """Everything that ``adiabat space`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: DataSection = DataSection()
    space: SpaceSection = SpaceSection()
    run: RunSection = RunSection()
