"""Measuring a candidate on the tasks of a comparison: corpora are embedded by each model for as long as it takes."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from adiabat.config import MeasureSection
from adiabat.data.records import Document
from adiabat.data.trained import TrainedTexts
from adiabat.measure.samples import TaskScores
from adiabat.model.towers import DualEncoder
from adiabat.store.build import build_store
from adiabat.store.embeddings import Store
from adiabat.store.wordless import known_documents
from adiabat.tasks.data import Corpus, Task, left_out_was_said
from adiabat.tasks.retrieval import score_retrieval
from adiabat.tasks.systems import System
from adiabat.watch import Watch


def measure_on(
    tasks: Sequence[Task],
    model: DualEncoder,
    folder: Path,
    *,
    measure: MeasureSection,
    trained: TrainedTexts | None = None,
    watch: Watch,
) -> dict[str, TaskScores]:
    """Embed each corpus by a model, measure it on the tasks, and remove the stores.

    Args:
        trained: What the model was trained on; None where it was not trained.
    """
    found: dict[str, TaskScores] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with left_out_was_said():
        for number, corpus in enumerate(dict.fromkeys(task.corpus for task in tasks)):
            system = System(model, _embedded(model, corpus, folder / f"corpus-{number}", watch))
            for task in (one for one in tasks if one.corpus == corpus):
                examples = task.addressed(system.store)
                by = (model.ranks_by,)
                found[task.name] = score_retrieval(system, examples, settings=measure, trained=trained, similarities=by, watch=watch)
    shutil.rmtree(folder)
    return {task.name: found[task.name] for task in tasks}


def drawn_texts(tasks: Sequence[Task], count: int) -> list[str]:
    """Documents of the tasks, drawn at random, equally many of each corpus as far as it goes."""
    corpora = list(dict.fromkeys(task.corpus for task in tasks))
    drawn = list[str]()
    with left_out_was_said():
        for corpus in corpora:
            drawn += _sample(corpus.documents(), -(-count // len(corpora)))
    return drawn[:count]


def _sample(documents: Iterator[Document], count: int) -> list[str]:
    """So many of a stream, each as likely as any other (Vitter 1985, algorithm R)."""
    random = Random(0)
    kept = list[str]()
    for number, document in enumerate(documents):
        place = number if number < count else random.randint(0, number)
        if number < count:
            kept.append(document.text)
        elif place < count:
            kept[place] = document.text
    return kept


def _embedded(model: DualEncoder, corpus: Corpus, folder: Path, watch: Watch) -> Store:
    progress = _on(f"embedding {corpus.source}", watch)

    def documents() -> Iterator[Document]:
        blank, setting = corpus.blank, "tasks.blank"
        return known_documents(model.document, corpus.documents(), blank=blank, source=corpus.source, note=watch.note, setting=setting)

    return build_store(model, documents, folder, on_progress=progress, source=corpus.source, encoder_name=model.name).store


def _on(label: str, watch: Watch) -> Callable[[int, int], None]:
    return lambda done, total: watch.progress(label, done, total)
