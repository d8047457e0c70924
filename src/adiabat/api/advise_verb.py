"""`adiabat.advise`: whether tuning is worth it, before anything is tuned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adiabat.api.arguments import (
    Data,
    PathLike,
    Retained,
    SettingsLike,
    data_of,
    optional_place,
    path_of,
    require_model,
    require_retained,
    retained_sets,
    settings_of,
)
from adiabat.api.call import Progress
from adiabat.api.evaluate_verb import require_other_contents
from adiabat.api.repeated import Asked
from adiabat.api.space_verb import addressed_queries
from adiabat.api.tune_verb import estimate_tuning
from adiabat.api.with_page import replace_report, with_page
from adiabat.config.shared import AdviseSettings, DataSection, StepsRunSection, require_device_name
from adiabat.config.tuning import TuneDataSection, TuneSettings
from adiabat.core.errors import AdiabatError
from adiabat.core.progress import Watch
from adiabat.data.examples import resolved_split
from adiabat.evaluation.evaluate_checks import require_sets
from adiabat.models.model_paths import Model, name_of, require_names, require_reachable
from adiabat.results.advice_result import Advice
from adiabat.runs.output_dir import claimed, require_own
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store, refuse_swapped

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder

USUAL_SPLIT = "train"
"""Split of a BEIR folder with several, as for tuning."""


def advise(
    model: Model,
    store: PathLike,
    data: Data,
    *,
    retain: Sequence[Retained] = (),
    out: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: object,
) -> Advice:
    """Recommend before tuning: leave it, fuse with BM25, tune the query tower, get more data, or re-embed
    with a better model.

    Measures nDCG@10 of the untuned model, of BM25, of their fusion (Bruch, Gai and Ingber 2023), and of a
    linear map of the query vectors by cross-validation. No model is tuned, and nothing is written but the
    result and the BM25 index in the store.

    Args:
        model: Model that tuning would start from; its query tower encodes the queries.
        store: Document vectors of its document tower, with texts for BM25.
        data: Queries with positives, at least ten: those to tune with.
        retain: Store and data of each set that must not get worse, and perhaps its columns; the linear map is
            applied to it.
        out: Directory for ``result.json`` and ``report.html``; None writes nothing.
        exist_ok: True returns the result of the same call at once, as in `tune`. None replaces earlier
            advice.
        settings: `AdviseSettings`, a TOML file or nested dicts; ``adiabat settings advise`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``queries=500`` or ``device="cuda"``.

    Returns:
        The recommendation with its reason, and the figures behind it.

    Raises:
        AdiabatError: If model, store, data or settings are unusable, or a data set has fewer than ten
            queries.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> advice = adiabat.advise("demo", store, "train.jsonl")
        >>> list(advice.target.changes)
        ['untuned', 'BM25', 'fused with BM25', 'linear map']
    """
    chosen = settings_of(AdviseSettings, settings, options, section="advise", function="advise")
    require_model(model, "model")
    require_retained(retain)
    folder = optional_place(out)
    require_device_name(chosen.run.device)
    refuse_swapped(path_of(store, "store"), model, data, order=("model", "store", "data"))
    require_names(model)
    sets = [(path_of(store, "store"), data_of(data, "data")), *retained_sets(retain, chosen.retain)]
    asked = Asked.of("advise", folder, exist_ok, settings=chosen, replaces=True, model=model, sets=sets)
    if asked.is_finished():
        return asked.result(Advice)
    if folder:
        require_own(folder, "advice")
    queries = _queries(sets, chosen.data)
    splits = [each.split for each in queries]
    require_sets(sets, splits, chosen.data.columns.given())
    require_reachable(model)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.evaluation.systems import store_inputs
    from adiabat.experiments.advice import advise_on
    from adiabat.models.device import device_of
    from adiabat.models.model_names import load, trained_by

    device_of(chosen.run.device)
    with asked.carried_out(progress) as call, claimed(folder, kind="advice"):
        stores = {path: Store.open(path) for path in dict.fromkeys(path for path, _ in sets)}
        datasets = [(stores[each.store], each.addressed(stores[each.store])) for each in queries]
        require_other_contents([rows for _, rows in sets], datasets)
        towers = load(model, settings=chosen.encoder, device=chosen.run.device)
        fingerprint = towers.fingerprint("document")
        for opened in stores.values():
            opened.require_encoder(fingerprint, who=towers.name)
        inputs = {}
        for number, (each, split) in enumerate(zip(queries, splits, strict=True)):
            described = {"data": each.rows, **store_inputs(stores[each.store], None)}
            if split is not None:
                described["split"] = split
            inputs[f"retain {number}" if number else "target"] = described
        tuning = _tuning_time(towers, stores[sets[0][0]], sets[0][1], chosen, call.watch)
        result = advise_on(
            towers,
            datasets,
            settings=chosen,
            command=call.command,
            inputs=inputs,
            tuning=tuning,
            trained=trained_by(name_of(model)),
            watch=call.watch,
        )
        for opened in stores.values():
            opened.require_unchanged()
        if folder:
            replace_report(result, folder, call.watch, of="advice")
    return with_page(result, folder)


@dataclass(frozen=True, slots=True)
class _Queries:
    """The target or a retention set, with how its queries are read."""

    store: str
    rows: str
    section: DataSection
    usual_split: str

    @property
    def split(self) -> str | None:
        return resolved_split(self.rows, self.section.split, usual_split=self.usual_split)

    def addressed(self, store: Store) -> AddressedSet:
        return addressed_queries(self.rows, store, self.section, role="data", usual_split=self.usual_split)


def _queries(sets: Sequence[tuple[str, str]], target: DataSection) -> list[_Queries]:
    """The target with its columns and split; retention sets are read as in an evaluation."""
    retained = DataSection(missing=target.missing, ids=target.ids)
    # The columns and the split of the settings are those of the target.
    first, *others = sets
    return [
        _Queries(*first, target, USUAL_SPLIT),
        *(_Queries(*each, retained, "test") for each in others),
    ]


def _tuning_time(
    model: "DualEncoder", store: Store, data: str, settings: AdviseSettings, watch: Watch
) -> str:
    """The expected time of tuning on all of the data with the default settings, or why it is unknown."""
    section = settings.data
    tune = TuneSettings(
        data=TuneDataSection(
            split=section.split, columns=section.columns, missing=section.missing, ids=section.ids
        ),
        run=StepsRunSection(seed=settings.run.seed, device=settings.run.device),
    )
    try:
        return estimate_tuning(model, store, data, settings=tune, progress=watch).time.summary()
    except AdiabatError as fault:
        return f"expected time: unknown ({fault})"
