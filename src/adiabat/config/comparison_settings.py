"""Settings of ``adiabat compare``: a RUN.toml that all candidates share, and what each of them has of its own (Reimers 2021)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from unicodedata import category

from pydantic import ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator

from adiabat.config.dual_training import MemorySection, TowersSection, TrainRunSection, TrainSection, TrainSettings
from adiabat.config.dual_training_data import BatchesSection, MixtureSection, TrainDataSection
from adiabat.config.reader import _idle, _phrases, checked, keys_of
from adiabat.config.section import Section, SeedNumbers, Text, overlaid
from adiabat.config.shared import ColumnsSection, EncoderSection, MeasureSection
from adiabat.config.validation import shown
from adiabat.core.errors import ConfigError

STEPS, BATCH_SIZE = 2_000, 256
"""Of the standard short run, by Reimers 2021."""

COMMON = ("job", "encoder", "data", "towers", "mixture", "batches", "train", "memory", "run")
"""Tables of a RUN.toml that stand outside of the candidates."""

SAME = frozenset(("train.steps", "train.epochs", "train.batch_size"))
"""What makes runs comparable: no candidate has them of its own."""

LONGEST_NAME = 60


class CompareSection(Section):
    """``[compare]``: where the comparison goes, and how often each candidate is trained."""

    out: Text | None = None
    """Directory of the comparison. Required."""
    seeds: SeedNumbers = (0, 1, 2)
    """One run of each candidate with each of them; with one, nothing tells how much differs from run to run."""
    keep_models: bool = True
    """Whether the trained models stay after they were measured; their checkpoints do not in any case."""


class CompareBackbonesSection(CompareSection):
    """``[compare]`` of backbones: also how their speed is measured."""

    speed_texts: PositiveInt = 512
    """Documents of the tasks, drawn at random, that are encoded in a round."""
    speed_rounds: Annotated[int, Field(ge=3)] = 5
    """Timed rounds, of which the median counts; in each of them the backbones take turns."""


class CompareJobSection(Section):
    """``[job]`` of a comparison: what the candidates share of model and data."""

    model: Text | None = None
    """Where training starts. Candidates of a comparison of backbones may have their own."""
    data: Text | None = None
    """What is trained on. Candidates of a comparison of data have their own."""


class ShortTrainSection(TrainSection):
    """``[train]`` of a comparison: where neither steps nor epochs are given, the short run takes `STEPS` steps."""

    batch_size: Annotated[int, Field(ge=1)] = BATCH_SIZE


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


class CandidateSection(Section):
    """One of ``[[candidates]]``: a name, and tables of a RUN.toml that are laid over the common ones."""

    model_config = ConfigDict(extra="allow")
    name: Text

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        strange = any(letter in '/\\"' or category(letter) in ("Cc", "Zl", "Zp") for letter in name)
        if strange or name.startswith(".") or name != name.strip() or len(name) > LONGEST_NAME:
            raise ValueError(
                f"candidates.name must be the name of a folder of at most {LONGEST_NAME} characters, got {shown(name)}; "
                "leave out slashes, quotes and a dot at the beginning"
            )
        return name

    @property
    def own(self) -> dict[str, Any]:
        """Nested tables that are laid over the common ones."""
        return dict(self.model_extra or {})


class CompareSettings(Section):
    """What the two kinds of comparison have in common; `COMPARISONS` has the kinds."""

    kind: ClassVar[Literal["data", "backbones"]]
    varied: ClassVar[tuple[str, ...]] = ()
    """Tables and keys that a candidate may have of its own."""

    compare: CompareSection = CompareSection()
    job: CompareJobSection = CompareJobSection()
    encoder: EncoderSection = EncoderSection()
    data: TrainDataSection = TrainDataSection()
    towers: TowersSection = TowersSection()
    mixture: MixtureSection = MixtureSection()
    batches: BatchesSection = BatchesSection()
    train: ShortTrainSection = ShortTrainSection()
    memory: MemorySection = MemorySection()
    run: TrainRunSection = TrainRunSection()
    """Its seed is that of the bootstrap; runs have theirs from `CompareSection.seeds`."""
    tasks: Annotated[tuple[TaskSection, ...], Field(strict=False)] = ()
    candidates: Annotated[tuple[CandidateSection, ...], Field(strict=False)] = ()
    measure: MeasureSection = MeasureSection()
    """The first of its measures ranks the candidates."""

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, table: Any, handler: Callable[[Any], Self]) -> Self:
        """Check each candidate as the run that it becomes, whatever else is wrong."""
        found: list[Any] = []
        try:
            settings = handler(table)
        except ValidationError as fault:
            found = fault.errors()
        told = {*(phrase for one in found for phrase in _phrases(one, cls)), *(_idle(cls, table) if found else ())}
        wrong = [phrase for phrase in _faults(table, cls) if phrase.partition('": ')[2] not in told]
        if not found and not wrong:
            return settings
        lines: list[Any] = [{name: one[name] for name in ("type", "loc", "input", "ctx") if name in one} for one in found]
        lines += [{"type": "value_error", "loc": (), "input": None, "ctx": {"error": ValueError(phrase)}} for phrase in wrong]
        raise ValidationError.from_exception_data(cls.__name__, lines)

    def training(self, candidate: CandidateSection, *, seed: int = 0, out: Path | None = None) -> TrainSettings:
        """The run that a candidate becomes.

        Args:
            out: Directory of its job; None names none.
        """
        common = {name: getattr(self, name).model_dump(exclude_unset=True) for name in COMMON}
        here = {"job": {} if out is None else {"out": str(out)}, "run": {"seed": seed}}
        return checked(TrainSettings, laid_over(short_run(laid_over(common, candidate.own)), here))


class CompareDataSettings(CompareSettings):
    """Everything that ``adiabat compare data`` may be told: candidates are data sets, or mixtures of them."""

    kind = "data"
    varied = ("job.data", "data", "mixture", "batches")


class CompareBackbonesSettings(CompareSettings):
    """Everything that ``adiabat compare backbones`` may be told: candidates are models, or ways to train one."""

    kind = "backbones"
    varied = ("job.model", "encoder", "towers", "train", "memory")
    compare: CompareBackbonesSection = CompareBackbonesSection()


COMPARISONS: Mapping[str, type[CompareSettings]] = {"data": CompareDataSettings, "backbones": CompareBackbonesSettings}


def comparison_of(kind: str) -> type[CompareSettings]:
    """What a comparison of a kind may be told."""
    if kind not in COMPARISONS:
        raise ConfigError(f"what is compared must be {' or '.join(COMPARISONS)}, got {shown(kind)}; write adiabat compare data SPEC.toml")
    return COMPARISONS[kind]


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of a training run over others."""
    return overlaid(TrainSettings, below, above)


def short_run(table: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in what makes a run the standard short one."""
    train = table.get("train", {})
    if not isinstance(train, Mapping):
        return dict(table)
    steps = {} if "epochs" in train else {"steps": STEPS}
    return {**table, "train": {"batch_size": BATCH_SIZE, **steps, **train}}


def _faults(table: Any, kind: type[CompareSettings]) -> Iterator[str]:
    """What is wrong with the candidates of a table that may be faulty otherwise."""
    entries = table.get("candidates") if isinstance(table, Mapping) else None
    if not isinstance(entries, list | tuple):
        return
    candidates = [entry for entry in entries if isinstance(entry, Mapping)]
    common = {name: table[name] for name in COMMON if isinstance(table.get(name), Mapping)}
    # Their folders are to be told apart on any disk.
    names = Counter(str(candidate.get("name", "")).casefold() for candidate in candidates)
    if again := [name for name, count in names.items() if count > 1]:
        yield f"candidates must have names of their own, got {', '.join(map(shown, again))} more than once; rename them"
    everyone = [{key: value for key, value in candidate.items() if key != "name"} for candidate in candidates]
    for candidate, own in zip(candidates, everyone, strict=True):
        for phrase in _faults_of_one(own, common, kind):
            yield f'candidate "{candidate.get("name", "")}": {phrase}'
    overlaid = [{key for key, _ in _leaves(own)} for own in everyone]
    for key, _ in _leaves(common):
        if overlaid and all(key in keys for keys in overlaid):
            yield f"{key} has no effect where every candidate has its own; leave it out"


def _faults_of_one(own: Mapping[str, Any], common: Mapping[str, Any], kind: type[CompareSettings]) -> Iterator[str]:
    known = set(keys_of(TrainSettings))
    for key, value in _leaves(own):
        varies = key not in SAME and any(key == one or key.startswith(f"{one}.") for one in kind.varied)
        if key in known and not varies:
            yield f"{key} must be the same for all candidates, got {shown(value)}; write it outside of [[candidates]]"
    bare = {name: own[name] for name in ("model", "data") if isinstance(own.get(name), str)}
    for name, value in bare.items():
        yield f"{name} must be written as in a RUN.toml, got {name} = {shown(value)}; write job.{name} = {shown(value)}"
    run = short_run(laid_over(common, {key: value for key, value in own.items() if key not in bare}))
    try:
        settings = TrainSettings.model_validate(run)
    except ValidationError as fault:
        yield from (phrase for one in fault.errors() for phrase in _phrases(one, TrainSettings))
        yield from _idle(TrainSettings, run)
        return
    if settings.job.model is None and not bare:
        yield "job.model must be given, got none; " + ("write it outside of [[candidates]]" if kind.kind == "data" else "name one")
    if settings.job.data is None and not bare and not settings.data.sources:
        yield "job.data must be given, got none; " + ("name it, or list data.sources" if kind.kind == "data" else "write it once for all")


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no table, by its dotted key."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
