"""Tasks of mteb, run by mteb's evaluator, with scores of every unit where mteb stores enough."""

import json
import random
import re
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
from jaxtyping import Float32

from adiabat.core.errors import ConfigError, DataError, MissingDependencyError, reraise_unrelated, several
from adiabat.core.progress import SILENT, Watch
from adiabat.data.records import Side
from adiabat.evaluation.mteb_units import Subset, scored, unit_scores
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import Sample, TaskScores
from adiabat.store.text_vectors import embed_texts

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.model_meta import ModelMeta, ScoringFunction
    from mteb.types import PromptType

LOADER_OPTIONS = {"batch_size": 1024, "show_progress_bar": False}
"""How mteb passes texts; the encoder chooses its own batches."""

HUB_SECONDS = 5.0
"""Timeout of the hub: its client would retry for half a minute, for every task."""


class MtebEncoder:
    """A model behind mteb's encoder protocol: each tower with its prompt, and texts without a role through
    the query tower.

    It does not inherit from mteb's class: the protocol only requires methods, and importing mteb takes
    seconds.
    """

    def __init__(self, model: DualEncoder, *, watch: Watch = SILENT) -> None:
        """Wrap a model, which states its similarity."""
        self.model = model
        self.compared_by = model.similarity
        self.watch = watch

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: "TaskMetadata",
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: "PromptType | None" = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> Float32[np.ndarray, "n e"]:
        """Embed texts in float32, each distinct one once."""
        # No prompt goes by split or subset, the encoder chooses its own batches, and `watch` shows the
        # progress. The protocol's `precision` would quantise embeddings, so it is no argument here: as any
        # other option that mteb adds, it is refused.
        del hf_split, hf_subset, batch_size, show_progress_bar
        texts = list(chain.from_iterable(batch["text"] for batch in inputs))
        side: Side = "query" if prompt_type is None else prompt_type.value
        return embed_texts(self.model, texts, side=side, name=task_metadata.name, watch=self.watch)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of every vector with every other."""
        from mteb.similarity_functions import select_similarity

        return select_similarity(embeddings1, embeddings2, self._scoring())

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Scores of each vector with the vector beside it; higher is closer."""
        from mteb.similarity_functions import select_pairwise_similarity

        return select_pairwise_similarity(embeddings1, embeddings2, self._scoring())

    def _scoring(self) -> "ScoringFunction":
        """The model's similarity by mteb's name."""
        from mteb.models.model_meta import ScoringFunction

        names = {
            "cosine": ScoringFunction.COSINE,
            "dot": ScoringFunction.DOT_PRODUCT,
            "distance": ScoringFunction.EUCLIDEAN,
        }
        return names[self.compared_by]

    @cached_property
    def mteb_model_meta(self) -> "ModelMeta":
        """Metadata for the files of one evaluation, which are temporary."""
        from mteb.models.model_meta import ModelMeta

        plain = re.sub(r"[^\w.-]+", "-", self.model.name).strip("-.") or "unnamed"
        return ModelMeta.create_empty({"name": f"adiabat/{plain}", "similarity_fn_name": self._scoring()})


def score_mteb(
    model: DualEncoder, task: Any, *, name: str | None = None, watch: Watch = SILENT
) -> TaskScores:
    """Measure a model on a task of mteb.

    The value is mteb's own main score. Units are queries, pairs or texts where mteb keeps the model's answers
    and they reproduce that score; otherwise the task's data sets (subset and split) are the units. mteb seeds
    Python, numpy and torch; their random states are restored.

    Args:
        task: By name, or an object of mteb's.
        name: For tables; None takes the task's.
    """
    with _random_states_kept(), _without_bars():
        mteb = import_mteb()
        mteb_task = _task_named(mteb, task) if isinstance(task, str) else task
        _require_texts(mteb, mteb_task)
        # Data that the caller has loaded is left loaded.
        fresh = not mteb_task.data_loaded
        if fresh:
            _load(mteb_task)
        try:
            subsets = _evaluated(mteb, MtebEncoder(model, watch=watch), mteb_task)
            return _scores(subsets, name or mteb_task.metadata.name, _notes(mteb, mteb_task))
        finally:
            if fresh:
                mteb_task.unload_data()


def require_task(name: str) -> None:
    """Check, before a model is loaded, that mteb has the task, that it is a text task, and that its data is
    available.
    """
    with _random_states_kept(), _without_bars():
        mteb = import_mteb()
        mteb_task = _task_named(mteb, name)
        _require_texts(mteb, mteb_task)
        _load(mteb_task)
        mteb_task.unload_data()


def import_mteb() -> Any:
    """Import mteb, which takes seconds."""
    try:
        import mteb
    except ImportError as error:
        reraise_unrelated(error)
        raise MissingDependencyError("mteb", extra="mteb", purpose="a task of mteb") from error
    return mteb


def _task_named(mteb: Any, name: str) -> Any:
    """The task, or a `ConfigError` with the name that mteb takes it for."""
    try:
        return mteb.get_task(name)
    except KeyError as error:
        # mteb suggests the nearest name in its own message.
        _, _, close = str(error.args[0]).partition("Did you mean: ")
        advice = f"did you mean {close.strip(chr(39) + '?')}?" if close else "mteb.get_tasks() lists them"
        raise ConfigError(
            f"task must be the name of a task of mteb {mteb.__version__}, got {name!r}; {advice}"
        ) from error


def _require_texts(mteb: Any, task: Any) -> None:
    """Refuse aggregates, whose parts have units of their own, and tasks of images or sounds."""
    metadata = task.metadata
    if isinstance(task, mteb.abstasks.aggregated_task.AbsTaskAggregate):
        names = ", ".join(subtask.metadata.name for subtask in metadata.tasks)
        raise ConfigError(f"{metadata.name} must be a single task, got an aggregate; name its parts: {names}")
    if list(metadata.modalities) != ["text"]:
        raise ConfigError(
            f"{metadata.name} must be a task of texts alone, got "
            f"{', '.join(metadata.modalities)}; choose another"
        )


def _load(task: Any) -> None:
    """Load a task's data; a failure is one line."""
    try:
        with _hub_alone_if_it_answers():
            task.load_data()
    except Exception as error:
        # mteb, datasets and the network fail in many classes.
        reraise_unrelated(error)
        path = task.metadata.dataset.get("path", "its data set")
        raise DataError(
            f"{task.metadata.name}: {path} must be available from the Hugging Face hub or "
            f"its cache, got: {' '.join(str(error).split())}; "
            "run it once with access to the hub, or copy the cache from there (HF_HOME)"
        ) from error


@contextmanager
def _hub_alone_if_it_answers() -> Iterator[None]:
    """If the hub does not answer, use only its cache, as with ``HF_HUB_OFFLINE=1``."""
    import datasets
    from huggingface_hub import constants

    # Both libraries read the variable once, at import, and keep a copy.
    holders: tuple[Any, ...] = (constants, datasets.config)
    if constants.HF_HUB_OFFLINE or _answers(constants.ENDPOINT):
        yield
        return
    before = [holder.HF_HUB_OFFLINE for holder in holders]
    try:
        for holder in holders:
            holder.HF_HUB_OFFLINE = True
        yield
    finally:
        for holder, value in zip(holders, before, strict=True):
            holder.HF_HUB_OFFLINE = value


def _answers(endpoint: str) -> bool:
    """Whether a server, or the proxy before it, accepts a connection."""
    address = urlsplit(getproxies().get("https") or endpoint)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), timeout=HUB_SECONDS):
            return True
    except OSError:
        return False


def _evaluated(mteb: Any, encoder: MtebEncoder, task: Any) -> list[Subset]:
    """Run mteb's evaluator, and read the predictions that it wrote."""
    with tempfile.TemporaryDirectory(prefix="adiabat-mteb-") as created:
        folder = Path(created)
        result = mteb.evaluate(
            encoder,
            task,
            co2_tracker=False,
            encode_kwargs=dict(LOADER_OPTIONS),
            cache=mteb.ResultCache(folder),
            prediction_folder=folder,
            show_progress_bar=False,
        ).task_results[0]
        path = folder / task.prediction_file_name
        # Some kinds of tasks store no predictions.
        predicted = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    subsets = []
    for split, scores_of_split in result.scores.items():
        for scores in scores_of_split:
            name = scores["hf_subset"]
            answers = predicted.get(name, {}).get(split)
            subsets.append(Subset(task, split, name, scores, answers, encoder.compared_by))
    _require_numbers(subsets)
    return subsets


def _require_numbers(subsets: Sequence[Subset]) -> None:
    """Refuse a main score of NaN, which vectors that are all the same can have."""
    broken = [f"{subset.subset}/{subset.split}" for subset in subsets if not np.isfinite(subset.score)]
    if broken:
        raise DataError(
            f"{subsets[0].task.metadata.name}: mteb's {subsets[0].measure} must be a number, "
            f"got none for {several(broken, of='data sets')}; check whether the "
            "model gives all texts the same vector"
        )


def _scores(subsets: Sequence[Subset], name: str, notes: Sequence[str]) -> TaskScores:
    """Scores of units if mteb keeps enough of them, else one value for each data set."""
    measure = subsets[0].measure
    scores = unit_scores(subsets)
    if scores is None:
        sample = Sample(measure, np.array([subset.score for subset in subsets], dtype=np.float64))
        scores = scored("data set", [f"{subset.subset}/{subset.split}" for subset in subsets], sample)
        single = "its one data set is the only unit, too few for a test"
        counted = single if len(subsets) == 1 else f"its {len(subsets):,} data sets are the units"
        notes = [*notes, f"mteb keeps no scores of single texts that make up its {measure}: {counted}"]
    facts = {f"mteb's {measure}": float(np.mean([subset.score for subset in subsets]))}
    return replace(scores, task=name, facts=facts, notes=tuple(notes))


def _notes(mteb: Any, task: Any) -> list[str]:
    """What the values come from."""
    metadata = task.metadata
    source = f"{metadata.dataset.get('path', 'data of its own')}, revision {metadata.dataset.get('revision')}"
    notes = [f"by the evaluator of mteb {mteb.__version__} on {source}"]
    if task.superseded_by:
        notes.append(f"mteb has {task.superseded_by} in place of this task")
    return notes


@contextmanager
def _without_bars() -> Iterator[None]:
    """Hide the progress bars of ``datasets``, which would interfere with ours."""
    import datasets

    enabled = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            datasets.enable_progress_bars()


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restore all random states: importing mteb, and creating a task, seeds them."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
