"""`adiabat.label`: scores of a cross-encoder for the documents of each query."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    optional_name,
    path_of,
    place_of,
    settings_of,
)
from adiabat.api.call import Progress
from adiabat.api.repeated import Asked
from adiabat.config.dataset_settings import LabelSettings
from adiabat.mining.mine_checks import require_labellable, statistics_path

if TYPE_CHECKING:
    from adiabat.mining.label import Labelling


def label(
    data: Data,
    store: PathLike,
    out: PathLike,
    *,
    reranker: PathLike,
    model: PathLike | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> "Labelling":
    """Score documents of each query by a cross-encoder, as a teacher for ``tune`` and ``train``.

    Its positives are scored, and the top documents of the store and of BM25 over the store's texts; likely
    answers among these are left out, as in `mine`. ``loss = {"kind": "listwise"}`` learns from the file.

    Args:
        data: Queries with positives.
        store: Document vectors, with texts.
        out: File of the examples with ``scores``: ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``; statistics are
            written beside it.
        reranker: Cross-encoder: a directory or hub name of a model for sequence classification with one
            label.
        model: Model of the store, which encodes queries; None takes the one that the store names.
        exist_ok: True returns the result of the same call at once, as in `tune`. None resumes an interrupted
            call, and refuses a finished file.
        settings: `LabelSettings`, a TOML file or nested dicts; ``adiabat settings label`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``depth=20`` or ``max_tokens=256``.

    Returns:
        File and counts; other functions take it in place of the file.

    Raises:
        AdiabatError: If data, store, models or settings are unusable; then no file is written.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> teacher = {"reranker": "reranker", "model": "demo"}
        >>> labelled = adiabat.label("train.jsonl", store, "labelled.jsonl", **teacher)
        >>> labelled.report["queries"]
        20
    """
    chosen = settings_of(LabelSettings, settings, options, section="label", function="label")
    target, name = place_of(out), optional_name(model, "model")
    source, folder, teacher = data_of(data, "data"), path_of(store, "store"), path_of(reranker, "reranker")
    asked = Asked.of(
        "label",
        target,
        exist_ok,
        settings=chosen,
        proof=str(statistics_path(target).absolute()),
        data=source,
        store=folder,
        model=name,
        reranker=teacher,
    )
    if asked.is_finished():
        from adiabat.mining.label import labelled_before

        return labelled_before(target)
    require_labellable(source, folder, target, model=name, reranker=teacher, settings=chosen)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.mining.label import label as label_queries
    from adiabat.models.device import device_of
    from adiabat.models.model_names import load_with

    device_of(chosen.run.device)
    with asked.carried_out(progress) as call:
        labelling = label_queries(
            source,
            Path(folder),
            target,
            reranker=teacher,
            load=partial(load_with, device=chosen.run.device),
            model=name,
            settings=chosen,
            command=call.command,
            watch=call.watch,
        )
    return labelling
