"""Which tower a tenant takes: the shared one, its own, the average of both, or the untuned one.

A tenant begins with the shared tower, which the queries of all tenants chose. The average, the tenant's own
and the untuned tower replace it, one after another, where they rank the tenant's validation queries better
than the one that is kept so far, by a paired one-sided test at 80 %, and lose nothing on the retention sets.

Reference:
    Wortsman et al. 2022 (means of the weights of models that were tuned from one).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adiabat.adiabatic.choice import RETAINED, Scores, figures_of
from adiabat.adiabatic.judged_queries import JudgedQueries
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.tuning import TuneSettings
from adiabat.core.files import sole_writer
from adiabat.core.text import counted
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.data.text_hashes import TrainedTexts
from adiabat.models.bulk import TokenTable
from adiabat.models.embedding_head import STATED
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import load, trained_by
from adiabat.models.towers import averaged
from adiabat.results.evaluation_result import Result
from adiabat.results.tenants_result import TenantTower, TowerName
from adiabat.results.training_record import all_retained
from adiabat.runs.output_dir import open_job
from adiabat.runs.run_config import Job, is_job, read_description
from adiabat.stats.jackknife import lower_end
from adiabat.store.addressing import address
from adiabat.training.run_record import finish_run, finished


@dataclass(frozen=True, slots=True)
class TowerChoice:
    """The tower that a tenant takes.

    Attributes:
        name: Of the tower.
        towers: All that were tried, with their figures, the start not among them.
        why: In words.
    """

    name: TowerName
    towers: list[TenantTower]
    why: str


class TowerChooser:
    """Judges the towers of each tenant; what the untuned and the shared tower do on the retention sets is
    measured once.
    """

    def __init__(self, start: Encoder, shared: Encoder | None, retained: Sequence[JudgedQueries]) -> None:
        """Take the towers of all tenants; `shared` is None if its job kept the start."""
        self._shared, self._start, self._retained = shared, start, list(retained)
        self._before = self._of_retained(start)
        self._after_shared = None if shared is None else self._of_retained(shared)

    def choose(self, validation: JudgedQueries | None, own: Encoder | None, why_not_own: str) -> TowerChoice:
        """Judge the towers of a tenant.

        Args:
            validation: Its queries that choose; None if it has none.
            own: Its own tower; None without one.
            why_not_own: Why it has none, in words.
        """
        usual: TowerName = "start" if self._shared is None else "shared"
        if validation is None:
            return TowerChoice(usual, [], "no query is left to choose with")
        before = self._scores(self._start, validation)
        scores: dict[TowerName, list[Scores]] = {}
        if self._shared is not None and self._after_shared is not None:
            scores["shared"] = [self._scores(self._shared, validation), *self._after_shared]
        if own is not None:
            average = self.average(own)
            scores["average"] = [self._scores(average, validation), *self._of_retained(average)]
            scores["own"] = [self._scores(own, validation), *self._of_retained(own)]
        judged = [validation, *self._retained]
        towers = []
        for name, after in scores.items():
            towers.append(TenantTower(name, figures_of(judged, after, [before, *self._before])))
        lossless: set[TowerName] = {tower.name for tower in towers if all_retained(tower.figures)} | {"start"}
        scores["start"] = [before]
        kept = usual
        for name, (values, *_) in scores.items():
            gain = validation.sample(values - scores[kept][0])
            if name in lossless and lower_end(gain, RETAINED) > 0:
                kept = name
        queries = counted(len(validation.examples), "validation query")
        if kept == usual:
            why = why_not_own or f"no other tower ranks the {queries} better with 80 % confidence"
        else:
            why = f"it ranks the {queries} better than the {usual} tower with 80 % confidence"
        return TowerChoice(kept, towers, why)

    def average(self, own: Encoder) -> Encoder:
        """The average of a tenant's own tower and the shared one."""
        return averaged(own, self._shared or self._start)

    def _of_retained(self, tower: Encoder) -> list[Scores]:
        """The measure of each query of the retention sets by a tower."""
        return [self._scores(tower, queries) for queries in self._retained]

    def _scores(self, tower: Encoder, queries: JudgedQueries) -> Scores:
        return queries.scores(queries.vectors(tower), tower.device)


def judged_file(context: TuningContext, path: Path, settings: TuneSettings) -> JudgedQueries:
    """The queries of a file of `adiabat.adiabatic.tenant_data`, to judge towers with."""
    read = read_examples(path)
    assert isinstance(read, ExampleSet), "adiabat wrote the file"
    data = settings.data
    examples = address(read, context.store, missing=data.missing, ids=data.ids)
    tokens = TokenTable.of(context.model.query, examples.queries, side="query")
    similarity = STATED[context.distance(settings.tune)]
    return JudgedQueries.of(context.store, examples, tokens, similarity)


def tuned_tower(folder: Path, settings: TuneSettings) -> Encoder | None:
    """The query tower of a finished job on the device of its run; None if the job kept its start."""
    _, record = finished(Job(folder), "tuning")
    kept_start = record.chosen is None if record.candidates else not record.best_epoch
    if kept_start:
        return None
    return load(folder, device=settings.run.device).query.eval()


def write_average(own: Path, shared: Path, out: Path, tower: Encoder) -> None:
    """Write the average of a tenant's own tower and the shared one as a job, with the texts of both."""
    result, record = finished(Job(own), "tuning")
    model = load(own)
    note = f"the weights are the means of those of {own} and {shared}"
    averaged_record = replace(record, candidates=(), notes=(*record.notes, note))
    averaged_result: Result = replace(
        result, title=f"Average of {own} and {shared}", model=str(out), training=averaged_record
    )
    known = [texts for texts in (trained_by(own), trained_by(shared)) if texts is not None]
    description = read_description(Job(own))
    description["job"] = {**description["job"], "averaged_with": str(shared)}
    job = open_job(out, description, resume=is_job(out))
    with sole_writer(out):
        finish_run(
            job,
            replace(model, query=tower),
            averaged_result,
            TrainedTexts.joined(known),
            keep_checkpoints=None,
        )
