"""`adiabat.inspect`: what a data set holds."""

from pathlib import Path
from typing import TYPE_CHECKING

from adiabat.config.dataset_settings import InspectSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.profiling.profile import inspect as inspect_data
from adiabat.profiling.profile_record import Inspection
from adiabat.profiling.text_lengths import ModelTokens

if TYPE_CHECKING:
    from adiabat.models.model_names import Model


def inspect(
    data: str | Path, *, model: "Model | None" = None, settings: InspectSettings | None = None, watch: Watch = SILENT
) -> Inspection:
    """Look at a data set: counts, lengths, duplicates, languages, topics and tags, and what is wrong with it.

    Args:
        data: Examples, a corpus, a BEIR folder or a language grid.
        model: Whose tokenizer counts tokens; None counts words and characters.
        settings: None takes the defaults.
        watch: Whom to tell.

    Returns:
        What was found, faults of single rows among it.

    Raises:
        AdiabatError: If the data cannot be read at all, or a setting has no effect.
    """
    settings = settings or InspectSettings()
    tokens = None
    if model is not None:
        # Torch takes seconds to load, and counting words needs none.
        from adiabat.models.model_names import load

        tokens = ModelTokens(load(model, settings=settings.encoder))
    return inspect_data(str(data), settings=settings, tokens=tokens, watch=watch)
