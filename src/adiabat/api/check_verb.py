"""`adiabat.check`: whether a running endpoint gives a model's own vectors."""

from dataclasses import dataclass
from typing import Any

from adiabat.api.arguments import SettingsLike, require_model, settings_of, wrong_type
from adiabat.api.call import Progress, called
from adiabat.config.checking import CheckSettings
from adiabat.models.model_paths import Model, require_names, require_reachable
from adiabat.serving.serve_checks import require_client


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    """What `check` found.

    Attributes:
        agrees: Whether each vector of the endpoint is that of the model, up to its length where all vectors
            have unit length.
        texts: What was compared, in words.
        minimum_cosine: Least cosine, over the dimensions that both have.
        mean_cosine: Mean cosine.
        worst_text: The text of the least cosine.
        cause: What explains the difference; "" where nothing does, or none is there.
        notes: Further sentences: the nearest cause, lengths of vectors, the change of the ranking.

    Example:
        >>> adiabat.EndpointCheck(True, "2 texts", 1.0, 1.0, "a", "", ()).summary()
        'minimum cosine 1.0000, mean 1.0000, 2 texts'
    """

    agrees: bool
    texts: str
    minimum_cosine: float
    mean_cosine: float
    worst_text: str
    cause: str
    notes: tuple[str, ...]

    def summary(self) -> str:
        """One line, and one for each note."""
        told = f"minimum cosine {self.minimum_cosine:.4f}, mean {self.mean_cosine:.4f}, {self.texts}"
        if not self.agrees:
            told += f": {self.cause or 'no usual cause explains it'}"
        return "\n".join([told, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def check(
    endpoint: str,
    model: Model,
    *,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> EndpointCheck:
    """Compare a running endpoint with a model, and name what explains a difference.

    Works with any endpoint of OpenAI's interface for embeddings: `serve`, text-embeddings-inference, vLLM.
    Where vectors differ, the usual causes are tried: a missing or another prompt, the tower of documents, the
    base model, another pooling, a missing layer, another token limit, lower-casing.

    Args:
        endpoint: Its address, such as ``http://127.0.0.1:8000``.
        model: Model or job that it should serve.
        settings: `CheckSettings`, a TOML file or nested dicts; ``adiabat settings check`` lists them.
        progress: None shows notes on a terminal or in a notebook, True everywhere, False nowhere.
        **options: Single settings, such as ``served="tower"``, ``tower="document"`` or ``store="store"``.

    Returns:
        Whether they agree, and what explains it if not.

    Raises:
        AdiabatError: If the endpoint does not answer with vectors, or the model cannot be loaded.

    Example:
        >>> adiabat.check("http://127.0.0.1:9", "demo", served="demo")
        Traceback (most recent call last):
        ...
        adiabat.serving.endpoint.EndpointError: http://127.0.0.1:9/v1/embeddings must answer ...
    """
    chosen = settings_of(CheckSettings, settings, options, section="check", function="check")
    require_model(model, "model")
    if not isinstance(endpoint, str):
        raise wrong_type("endpoint", "an address", endpoint)
    require_client()
    require_names(model)
    require_reachable(model)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.models.model_names import load
    from adiabat.report.format import improvement
    from adiabat.serving.endpoint import Endpoint
    from adiabat.serving.endpoint_check import check_endpoint

    with called("check", progress) as call:
        # Before the model is loaded, which takes longer.
        reached = Endpoint.of(endpoint, chosen.check)
        found = check_endpoint(reached, load(model, settings=chosen.encoder), chosen.check, call.watch)
    change = found.parity.change
    told = "" if change is None else f"{change.measure} {improvement(change)}, {change.verdict}"
    return EndpointCheck(
        found.agrees,
        found.parity.texts,
        found.parity.minimum,
        found.parity.mean,
        found.parity.worst,
        found.cause,
        tuple(note for note in (*found.notes, told) if note),
    )
