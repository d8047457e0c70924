"""The power of data sets: in an evaluation, for the validation queries of a tuning job, and for a model on
one set.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from adiabat.config.shared import MeasureSection
from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.core.progress import SILENT, Watch
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.systems import System, similarities_of
from adiabat.models.towers import DualEncoder
from adiabat.results.power_record import Power
from adiabat.stats.power import power_of
from adiabat.stats.samples import TaskScores
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store

MOST_VALIDATION = 1_000
"""Maximum validation queries that are ranked: each is ranked in the whole store, by two towers."""


def set_powers(scores: Sequence[Sequence[TaskScores]], *, margin: Margin) -> list[Power]:
    """Power of every data set.

    Args:
        scores: Of each data set those of the model, and of the baseline if there is one, on the queries that
            decide.
        margin: The loss that would matter.

    Returns:
        Observed power against a baseline, else a prediction, which language grids do not have: their units
            have no scores of their own.
    """
    return [
        task_power(*sides, margin=margin)
        for sides in scores
        if len(sides) > 1 or not sides[0].samples[0].pseudo_values
    ]


def task_power(
    scores: TaskScores, baseline: TaskScores | None = None, *, margin: Margin = DEFAULT_MARGIN
) -> Power:
    """Power of a task by its main measure: predicted from the scores of one model, or observed against a
    baseline.
    """
    main = scores.samples[0]
    power = (
        power_of(main, unit=scores.unit, margin=margin)
        if baseline is None
        else power_of(baseline.samples[0], main, unit=scores.unit, margin=margin)
    )
    return replace(power, name=scores.task)


def model_power(
    model: DualEncoder,
    store: Store,
    examples: AddressedSet,
    *,
    settings: MeasureSection,
    watch: Watch = SILENT,
) -> Power:
    """What a data set could show of a tuning of `model`, which is measured on it."""
    store.require_encoder(model.fingerprint("document"), who=model.name)
    scores = score_retrieval(System(model, store), examples, settings=settings, watch=watch)
    return task_power(scores, margin=settings.loss_margin())


def validation_power(
    start: DualEncoder, tuned: DualEncoder, store: Store, validation: AddressedSet, watch: Watch = SILENT
) -> Power | None:
    """What as many test queries as a tuning job's validation queries could show, ranked in the whole store
    before and after.

    None with fewer than two queries. Of more than `MOST_VALIDATION`, so many are drawn.
    """
    if len(validation) < 2:
        return None
    drawn = np.sort(np.random.default_rng(0).permutation(len(validation))[:MOST_VALIDATION])
    settings, similarities = (
        MeasureSection(negatives="store", drop_same_id=False),
        similarities_of(tuned, start),
    )
    after, before = (
        score_retrieval(
            System(model, store),
            validation.take(drawn),
            settings=settings,
            similarities=similarities[:1],
            watch=watch,
        )
        for model in (tuned, start)
    )
    # A tuning that changed nothing shows no spread: it is predicted.
    changed = not np.array_equal(after.samples[0].values, before.samples[0].values)
    power = task_power(after, before) if changed else task_power(before)
    return replace(power, name=f"{validation.name}, validation")
