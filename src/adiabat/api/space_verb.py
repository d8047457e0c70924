"""`adiabat.space`: the geometry of an embedding space."""

from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    optional_place,
    path_of,
    require_model,
    settings_of,
)
from adiabat.api.call import Progress
from adiabat.api.repeated import Asked
from adiabat.api.with_page import replace_report, with_page
from adiabat.config.shared import DataSection, require_device_name
from adiabat.config.tasks import SpaceSettings
from adiabat.core.errors import DataError
from adiabat.core.wording import positional
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.evaluation.evaluate_checks import require_baseline_stores, require_maps, require_sets
from adiabat.models.model_paths import Model, require_names, require_reachable
from adiabat.results.space_result import SpaceResult
from adiabat.runs.output_dir import claimed, require_own
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store, refuse_swapped

if TYPE_CHECKING:
    from adiabat.evaluation.systems import System


def space(
    model: Model,
    store: PathLike,
    queries: Data,
    *,
    baseline: Model | None = None,
    baseline_store: PathLike | None = None,
    out: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> SpaceResult:
    """Measure an embedding space: the distance between the towers, and the uniformity of each (Moiseev et al.
    2023).

    Args:
        model: Model under test; its query tower encodes the queries.
        store: Document vectors of its document tower.
        queries: Queries with positives in the store.
        baseline: Model to compare with.
        baseline_store: Document vectors of the baseline, if its document tower differs: the same documents in
            the same order.
        out: Directory for ``result.json``, ``report.html``, ``table.csv`` and ``table.md``; None writes
            nothing.
        exist_ok: True returns the result of the same call at once, as in `tune`. None replaces an earlier
            analysis.
        settings: `SpaceSettings`, a TOML file or nested dicts; ``adiabat settings space`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``map=True`` or ``resamples=1000``. Of the optional table ``map``,
            None keeps what `settings` say, False switches it off, and True or a dict switches it on.

    Returns:
        The result.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> result = adiabat.space("demo", store, "test.jsonl", resamples=100)
        >>> result.to_frame().shape[0] == len(result.numbers)
        True
    """
    chosen = settings_of(SpaceSettings, settings, options, section="space", function="space")
    require_model(model, "model")
    if baseline is not None:
        require_model(baseline, "baseline")
    folder, path = optional_place(out), path_of(store, "store")
    named = [] if baseline_store is None else [path_of(baseline_store, "baseline_store")]
    if chosen.space.map:
        require_maps()
    require_device_name(chosen.run.device)
    refuse_swapped(path, model, queries, order=("model", "store", "queries"))
    require_names(model, baseline)
    require_baseline_stores(named, baseline=baseline is not None, argument="baseline_store")
    source = data_of(queries, "queries")
    inputs: dict[str, Any] = {
        "model": model,
        "store": store,
        "queries": source,
        "baseline": baseline,
        "baseline_store": baseline_store,
    }
    asked = Asked.of("space", folder, exist_ok, settings=chosen, replaces=True, **inputs)
    if asked.is_finished():
        return asked.result(SpaceResult)
    if folder:
        require_own(folder, "space")
    require_sets([(path, source)], [chosen.data.split], chosen.data.columns.given())
    require_reachable(model, baseline)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.evaluation.space_analysis import analyse_space
    from adiabat.evaluation.systems import System
    from adiabat.models.device import device_of
    from adiabat.models.model_names import load

    device_of(chosen.run.device)
    opened, others = Store.open(path), [Store.open(other) for other in named]
    with asked.carried_out(progress) as call, claimed(folder, kind="space"):
        examples = addressed_queries(source, opened, chosen.data)
        after = System(load(model, settings=chosen.encoder, device=chosen.run.device), opened)
        opened.require_encoder(after.model.fingerprint("document"), who=after.model.name)
        before = None if baseline is None else _before(baseline, opened, others, chosen)
        result = analyse_space(
            after,
            before,
            examples,
            settings=chosen,
            title=f"{after.model.name} on {examples.name}",
            command=call.command,
            inputs=_inputs(source, chosen, opened, before),
            watch=call.watch,
        )
        for read in (opened, *others):
            read.require_unchanged()
        if folder:
            replace_report(result, folder, call.watch, of="analysis")
    return with_page(result, folder)


def addressed_queries(
    source: str,
    store: Store,
    data: DataSection,
    *,
    role: str = "queries",
    usual_split: str = "test",
) -> AddressedSet:
    """Read queries with positives, and find their documents in a store; `role` names them in the message
    about a language grid.
    """
    examples = read_examples(source, split=data.split, columns=data.columns.given(), usual_split=usual_split)
    if not isinstance(examples, ExampleSet):
        raise DataError(
            f"{positional(role)} must be queries with positives, got the language grid "
            f"{source}; name examples or a BEIR folder"
        )
    return address(examples, store, missing=data.missing, ids=data.ids, merge_equal=True)


def _before(baseline: Model, store: Store, others: list[Store], settings: SpaceSettings) -> "System":
    """The baseline with its own documents."""
    from adiabat.evaluation.systems import baseline_system, refuse_unused_stores
    from adiabat.models.model_names import load

    towers = load(baseline, settings=settings.encoder, device=settings.run.device)
    system = baseline_system(towers, towers.fingerprint("document"), store, others, argument="baseline_store")
    refuse_unused_stores(others, [system.store], argument="baseline_store")
    return system


def _inputs(queries: str, settings: SpaceSettings, store: Store, before: "System | None") -> dict[str, str]:
    """The inputs of the result."""
    from adiabat.evaluation.systems import store_inputs

    split = {} if settings.data.split is None else {"split": settings.data.split}
    return {"data": queries, **split, **store_inputs(store, before)}
