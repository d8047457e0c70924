"""Who is measured: models by name, each loaded when it is first needed, and BM25 beside them."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from adiabat.config import EncoderSection
from adiabat.config.suite import ModelSection
from adiabat.data.trained import TrainedTexts
from adiabat.errors import AdiabatError, ConfigError
from adiabat.measure.suite_results import SuiteModel
from adiabat.model.towers import DualEncoder
from adiabat.store.lexical import VERSION
from adiabat.store.words import analyser_of

Loader = Callable[[str, EncoderSection], DualEncoder]
"""Loads a model by its name, with overrides."""

Recorder = Callable[[str], TrainedTexts | None]
"""Says what the job of a model was trained on; None where the model is of no job."""

LEXICAL = "bm25"
"""Name of a model that is none: words in common. ``bm25:LANGUAGE`` cuts words to their stems."""


def no_record(model: str) -> None:
    """No record: what models were trained on is not looked up."""


def is_lexical(model: str) -> bool:
    """Whether a model's name means BM25."""
    return model.partition(":")[0] == LEXICAL


def _stemmer(model: str) -> str | None:
    """The language that follows the name of BM25."""
    return model.partition(":")[2] or None


@dataclass(frozen=True)
class Subject:
    """One run of a model.

    Attributes:
        name: Of the model, for tables.
        model: What to load.
        encoder: Overrides.
        loader: Loads it.
        recorder: Says what the job of a model was trained on.
    """

    name: str
    model: str
    encoder: EncoderSection
    loader: Loader
    recorder: Recorder = no_record

    @property
    def is_lexical(self) -> bool:
        """Whether it is BM25, which has no vectors."""
        return is_lexical(self.model)

    @property
    def stemmer(self) -> str | None:
        """Of BM25: the language whose words are cut to their stems; None leaves them whole."""
        return _stemmer(self.model)

    @cached_property
    def towers(self) -> DualEncoder:
        """The model, loaded at the first call."""
        return self.loader(self.model, self.encoder)

    @cached_property
    def trained(self) -> TrainedTexts | None:
        """What its job was trained on."""
        return self.recorder(self.model)

    @cached_property
    def key(self) -> str:
        """SHA-256 of what its scores follow from: weights and settings of both towers, what they compare by; of BM25 the rule for words."""
        parts: list[object] = [self.model, VERSION]
        if not self.is_lexical:
            parts = [self.towers.fingerprint(side).to_json() for side in ("query", "document")]
            # Said only where it is not the usual one.
            parts += [] if self.towers.similarity == "cosine" else [self.towers.similarity]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def about(self, runs: Sequence["Subject"]) -> SuiteModel:
        """For tables and reports."""
        others = [run.model for run in runs] if len(runs) > 1 else []
        if self.is_lexical:
            words = f"cut to {self.stemmer.capitalize()} stems" if self.stemmer else "as they stand"
            about = f"BM25 ranks by the words in common, {words}; it has no vectors, so it does retrieval and triplets alone"
            return SuiteModel(self.name, self.model, notes=[about])
        query, document = self.towers.query, self.towers.document
        return SuiteModel(
            name=self.name,
            model=self.model,
            runs=others,
            parameters=self.towers.parameters,
            width=query.width,
            query_prompt=query.settings.query_prompt,
            document_prompt=document.settings.document_prompt,
        )


def subjects_of(
    sections: Sequence[ModelSection], names: Sequence[str], encoder: EncoderSection, loader: Loader, recorder: Recorder = no_record
) -> list[tuple[Subject, ...]]:
    """The models of a suite and of the command line, each with its runs."""
    wanted: list[tuple[str, tuple[str, ...], EncoderSection]] = [(one.name, (one.model, *one.runs), one.encoder) for one in sections]
    # BM25 encodes nothing, so what is set for all models is not for it.
    wanted += [(name, (name,), EncoderSection() if is_lexical(name) else encoder) for name in dict.fromkeys(names)]
    faults = list(_faults(wanted))
    if faults:
        raise ConfigError("; ".join(faults))
    return [tuple(Subject(name, run, own, loader, recorder) for run in runs) for name, runs, own in wanted]


def _faults(wanted: Sequence[tuple[str, Sequence[str], EncoderSection]]) -> Iterator[str]:
    if not wanted:
        yield "at least one model must be given, got none; name it before --suite, or list it under [[models]]"
    for name, count in Counter(name for name, _, _ in wanted).items():
        if count > 1:
            yield f"models must have names of their own, got {name} {count} times; give them names under [[models]]"
    for name, runs, own in wanted:
        if any(map(is_lexical, runs)) and (len(runs) > 1 or own != type(own)()):
            yield f"{name}: BM25 must have neither runs nor encoder settings: it draws nothing and encodes nothing; leave them out"
        for run, count in Counter(runs).items():
            if count > 1:
                yield f"models.runs of {name} must differ, got {run} {count} times; name each once: counted twice, it narrows the interval"
            if is_lexical(run):
                yield from _stemmer_faults(run)


def _stemmer_faults(run: str) -> Iterator[str]:
    """What would be told only when the turn of BM25 comes."""
    try:
        analyser_of(_stemmer(run))
    except AdiabatError as fault:
        yield f"{run}: {fault}"
