"""`adiabat.inspect`: what a data set holds."""

from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import Data, SettingsLike, data_of, require_model, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.dataset_settings import InspectSettings
from adiabat.profiling.profile import inspect as inspect_data
from adiabat.profiling.profile_record import Inspection
from adiabat.profiling.text_lengths import ModelTokens

if TYPE_CHECKING:
    from adiabat.models.model_names import Model


def inspect(
    data: Data, *, model: "Model | None" = None, settings: SettingsLike = None, progress: Progress = None, **options: Any
) -> Inspection:
    """Profile a data set: counts, lengths, duplicates, languages, topics, and faults by line.

    Args:
        data: Examples, a corpus, a BEIR folder or a language grid; or rows in memory.
        model: Counts tokens by its tokenizer; None counts words and characters.
        settings: `InspectSettings`, a TOML file or nested dicts; ``adiabat settings inspect`` lists them.
        progress: Whether progress is shown; None shows it on a terminal and in notebooks.
        **options: Single settings, such as ``split="train"``.

    Returns:
        The profile; faults of single rows are part of it.

    Raises:
        AdiabatError: If the data cannot be read, or a setting has no effect.
        TypeError: If an argument has a type that is not listed, or a setting is unknown.

    Example:
        >>> adiabat.inspect([{"query": "What is a graph?", "positive": "Nodes and edges."}]).rows
        1
    """
    chosen = settings_of(InspectSettings, settings, options, section="inspect", function="inspect")
    tokens = None
    if model is not None:
        require_model(model, "model")
        # Torch takes seconds to load, and counting words needs none.
        from adiabat.models.model_names import load

        tokens = ModelTokens(load(model, settings=chosen.encoder))
    with called("inspect", progress) as call:
        return inspect_data(data_of(data, "data"), settings=chosen, tokens=tokens, watch=call.watch)
