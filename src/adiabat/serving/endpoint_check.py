"""Whether an endpoint gives a model's own vectors, and if not, which of the usual causes explains it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from adiabat.config.checking import CheckSection
from adiabat.core.errors import AdiabatError
from adiabat.core.progress import Watch
from adiabat.data.records import Side
from adiabat.exporting.job_tables import base_of
from adiabat.exporting.parity import Compared, Parity, compared_texts, cosines, parity
from adiabat.models.embedding_head import POOLINGS
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import load
from adiabat.models.st_files import position_rows
from adiabat.models.towers import DualEncoder
from adiabat.serving.batching import Vectors
from adiabat.serving.endpoint import Endpoint, RefusedError

TRIED = 32
"""Texts that each cause is tried on; the one that explains them best is tried on all."""

PROMPTS = (
    "query: ",
    "passage: ",
    "search_query: ",
    "Represent this sentence for searching relevant passages: ",
)
"""Prompts that servers put before texts of models that have none."""

LIMITS = (32, 64, 128, 256, 384, 512, 1_024, 2_048, 8_192)
"""Token limits of servers and models."""

UNIT = 1e-3
"""By how much, relatively, the length of a vector may be off."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found at an endpoint.

    Attributes:
        parity: Agreement with the model's own vectors, and the change of the ranking.
        cause: What explains a difference, in words; "" without one.
        notes: Sentences on the nearest cause where none explains it, on lengths, and on refused texts.
    """

    parity: Parity
    agrees: bool
    cause: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Cause:
    """Something that an endpoint may do otherwise, and the vectors that it then gives."""

    sentence: str
    embed: Callable[[Sequence[str]], Vectors]


def check_endpoint(endpoint: Endpoint, model: DualEncoder, section: CheckSection, watch: Watch) -> Found:
    """Compare an endpoint with a model.

    Raises:
        EndpointError: If the endpoint does not answer with vectors.
    """
    side: Side = section.tower
    tower = model.tower(side)
    compared = compared_texts(model, section, side, watch, most=section.texts)
    texts = list(compared.texts)
    watch.note(f"comparing {compared.named} and one that is too long")
    fields = _fields(endpoint, texts[:1], side)
    served, notes = endpoint.embed(texts, **fields), []
    try:
        # Beyond any limit, so that another one shows: queries are short.
        long = " ".join([*texts, *compared.others])[: 12 * max(tower.settings.limit(side), LIMITS[4])]
        served = np.concatenate([served, endpoint.embed([long], **fields)])
        texts.append(long)
    except RefusedError as fault:
        notes.append(f"texts beyond the limit are refused, not cut: {fault}")
    own = _embedded(tower, side, texts)
    found = parity(Compared(texts, compared.named, ()), own, served, ranked=False)
    if served.shape[1] != own.shape[1]:
        told = f"the endpoint gives {served.shape[1]} dimensions, the model {own.shape[1]}"
        if found.minimum >= section.min_cosine:
            return Found(found, agrees=False, cause=f"{told}, of which the first are the same", notes=notes)
        cause, nearest = _explained(texts, own, served, model, section)
        notes += nearest
        told += f", and {cause}" if cause else ", and no usual cause explains the first of them"
        return Found(found, agrees=False, cause=told, notes=notes)
    if compared.judged is not None and side == "query":
        judged = len(compared.texts)
        found = replace(found, change=parity(compared, own[:judged], served[:judged], ranked=True).change)
    lengths = _lengths(own, served)
    if found.minimum >= section.min_cosine:
        if tower.settings.unit_length or not lengths:
            return Found(found, agrees=True, notes=[*notes, *lengths])
        # Of vectors that are compared by dot product, the length counts.
        return Found(found, agrees=False, cause=lengths[0], notes=notes)
    cause, nearest = _explained(texts, own, served, model, section)
    return Found(found, agrees=False, cause=cause, notes=[*notes, *nearest, *lengths])


def _fields(endpoint: Endpoint, texts: Sequence[str], side: Side) -> dict[str, str]:
    """The field that asks `adiabat serve` for the document tower, where the endpoint knows it."""
    if side == "query":
        return {}
    try:
        endpoint.embed(texts, input_type=side)
    except RefusedError:
        return {}
    return {"input_type": side}


def _explained(
    texts: Sequence[str], own: Vectors, served: Vectors, model: DualEncoder, section: CheckSection
) -> tuple[str, list[str]]:
    """The cause that explains a difference, or else a note on the nearest one."""
    # The texts that differ most tell causes apart.
    order = np.argsort(cosines(own, served))[:TRIED]
    few = [texts[row] for row in order]
    best, least = None, -1.0
    for cause in _causes(model, section.tower):
        minimum = _least(cause.embed(few), served[order])
        if minimum > least:
            best, least = cause, minimum
    if best is None:
        return "", []
    whole = _least(best.embed(texts), served)
    if whole >= section.min_cosine:
        return best.sentence, []
    return "", [f"{best.sentence} comes nearest (least cosine {whole:.4f})"]


def _causes(model: DualEncoder, side: Side) -> Iterator[_Cause]:
    """The usual causes, the commonest first: of equally good ones the first is named."""
    tower = model.tower(side)
    settings = tower.settings
    prompt = settings.prompt(side)
    other: Side = "document" if side == "query" else "query"

    def of(encoder: Encoder, taken: Side, sentence: str, *, before: str = "") -> _Cause:
        return _Cause(sentence, partial(_embedded, encoder, taken, before=before))

    bare = tower.with_settings(replace(settings, query_prompt="", document_prompt=""))
    if prompt:
        yield of(bare, side, f"the endpoint does not put `{prompt}` before texts")
        yield of(
            tower, side, f"the endpoint puts `{prompt}` before texts that have it already", before=prompt
        )
    for foreign in dict.fromkeys((settings.prompt(other), *PROMPTS)):
        if foreign not in ("", prompt):
            yield of(bare, side, f"the endpoint puts `{foreign}` before texts", before=foreign)
    base_name = base_of(model.name)
    base = None if base_name is None else _loaded(base_name)
    if not model.alike:
        route = model.tower(other)
        unprompted = route.with_settings(replace(route.settings, query_prompt="", document_prompt=""))
        told = f"the endpoint embeds by the {other} tower"
        # Of a tuned query tower the other one is that of the base model, with which it shares its vectors.
        if base is not None and base.tower(side).weights_digest() == route.weights_digest():
            told += f", or serves the base model, {base_name}"
        yield of(route, other, told)
        yield of(unprompted, other, f"{told}, without a prompt")
        yield of(route, side, f"{told}, with the prompt of the {side} tower")
    if base is not None:
        yield of(base.tower(side), side, f"the endpoint serves the base model, {base_name}")
    for pooling in POOLINGS:
        if pooling != settings.pooling:
            yield of(
                tower.with_settings(replace(settings, pooling=pooling)),
                side,
                f"the endpoint pools by {pooling} in place of {settings.pooling}",
            )
    if layers := tower.projection_list():
        shorter = Encoder(tower.backbone, tower.tokenizer, settings, layers[:-1]).eval()
        if shorter.width == tower.width:
            yield of(shorter, side, "the endpoint leaves out the last layer (2_Dense)")
    most = position_rows(tower.backbone)
    for limit in LIMITS:
        if limit != settings.limit(side) and (most is None or limit <= most):
            limits = {"max_tokens": limit, "query_max_tokens": None, "document_max_tokens": None}
            yield of(
                tower.with_settings(replace(settings, **limits)),  # type: ignore[arg-type]
                side,
                f"the endpoint cuts texts at {limit} tokens in place of {settings.limit(side)}",
            )

    def lowered(texts: Sequence[str]) -> Vectors:
        return _embedded(tower, side, [text.lower() for text in texts])

    yield _Cause("the endpoint lower-cases texts", lowered)


def _loaded(name: str) -> DualEncoder | None:
    """The base model; None if it is gone, so that the causes without it are tried all the same."""
    try:
        return load(name)
    except AdiabatError:
        return None


def _embedded(tower: Encoder, side: Side, texts: Sequence[str], *, before: str = "") -> Vectors:
    return np.asarray(tower.encode([before + text for text in texts], side=side, precision="fp32"))


def _lengths(own: Vectors, served: Vectors) -> list[str]:
    """A sentence on vectors of another length than the model's, which matters where dot products rank."""
    expected, found = np.linalg.norm(own, axis=1), np.linalg.norm(served, axis=1)
    ratios = found / np.where(expected, expected, 1.0)
    if np.abs(ratios - 1).max() <= UNIT:
        return []
    return [f"vectors have {ratios.min():.3f} to {ratios.max():.3f} times the length of the model's"]


def _least(own: Vectors, served: Vectors) -> float:
    return float(cosines(own, served).min())
