"""Which program embeds a corpus fastest on this processor: its texts are timed by each.

int8 pays only where it is multiplied in hardware, bfloat16 likewise, and the best program depends on the
lengths of the texts. So nothing is assumed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from adiabat.config.shared import EncoderSection, QueryRunSection
from adiabat.core.errors import ModelError
from adiabat.data.records import Side
from adiabat.models.device import MINIMUM_COSINE, PROBE, Precision, minimum_cosine, native_bf16
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder

WORTH_MEASURING = 4_000
"""Distinct texts from which a choice pays: to convert MiniLM and to time all candidates takes ten seconds,
and 4,000 abstracts more than a minute on two cores."""

TIMED_TEXTS, ROUNDS = 48, 2
"""Texts that each candidate embeds, and how often; the shortest time counts."""

Note = Callable[[str], None]

GraphPrecision = Literal["fp32", "bf16"]
"""Precision of a graph that is not quantised."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to embed documents.

    Attributes:
        name: ``torch``, ``openvino fp32`` or ``openvino bf16``.
        precision: Precision of torch.
    """

    name: str
    model: DualEncoder
    precision: Precision


def may_gain(model: DualEncoder, distinct: int) -> bool:
    """Whether OpenVINO can embed documents of a model, and a corpus is large enough to find out."""
    tower = model.document
    is_graph = tower.device.type == "cpu" and not isinstance(tower.backbone, StaticBackbone)
    return is_graph and distinct >= WORTH_MEASURING and find_spec("openvino") is not None


def load_for_queries(model: Model, settings: EncoderSection, run: QueryRunSection) -> DualEncoder:
    """Load a model whose queries are encoded by the program of the settings."""
    by_graph = run.backend == "openvino"
    device = "cpu" if by_graph and run.device == "auto" else run.device
    loaded = load(model, settings=settings, device=device)
    if not by_graph:
        return loaded
    require_graph(loaded.query)
    return by_openvino(loaded, "query", ["fp32"])[0].model


def require_graph(tower: Encoder) -> None:
    """Refuse a static model, which is a table of vectors without a graph."""
    if isinstance(tower.backbone, StaticBackbone):
        raise ModelError(
            "OpenVINO runs transformers, got a static model, which looks its vectors up; leave the backend "
            "and int8 out"
        )


def candidates(model: DualEncoder, precision: Precision, note: Note) -> list[Candidate]:
    """Torch in a precision, and OpenVINO in the same one or, for ``auto``, in each that is native.

    Returns:
        torch first; alone, with a note, if the model has no graph.
    """
    by_torch = Candidate("torch", model, precision)
    graphs: list[GraphPrecision] = ["fp32", "bf16"] if precision == "auto" else [precision]
    if precision == "auto" and not native_bf16(model.document.device):
        graphs.remove("bf16")
    try:
        return [by_torch, *by_openvino(model, "document", graphs)]
    except ModelError as fault:
        note(f"documents are encoded by torch: {fault}")
        return [by_torch]


def by_openvino(model: DualEncoder, side: Side, precisions: Sequence[GraphPrecision]) -> list[Candidate]:
    """A model one side of which OpenVINO embeds, in each of some precisions."""
    from adiabat.models.openvino_graphs import runtimes_of

    runtimes = runtimes_of(model.tower(side), side, precisions)
    return [
        Candidate(f"openvino {precision}", model.with_runtime(runtime, side), precision)
        for precision, runtime in zip(precisions, runtimes, strict=True)
    ]


def fastest(
    candidates: Sequence[Candidate],
    texts: Sequence[str],
    note: Note,
    clock: Callable[[], float] = time.perf_counter,
) -> Candidate:
    """The candidate that embeds texts in the least time, among the first one and those whose vectors of the
    probe texts keep their cosine to its vectors in float32.

    All take turns, so that other work on the machine slows none of them alone.
    """
    first, *others = candidates
    exact = first.model.encode(PROBE, side="document", precision="fp32")
    kept = [first]
    for candidate in others:
        vectors = candidate.model.encode(PROBE, side="document", precision=candidate.precision)
        if minimum_cosine(exact, vectors) >= MINIMUM_COSINE:
            kept.append(candidate)
    seconds = {candidate.name: float("inf") for candidate in kept}
    for _ in range(ROUNDS):
        for candidate in kept:
            began = clock()
            candidate.model.encode(texts, side="document", precision=candidate.precision)
            seconds[candidate.name] = min(seconds[candidate.name], clock() - began)
    rates = {name: len(texts) / max(taken, 1e-9) for name, taken in seconds.items()}
    told = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    best = max(kept, key=lambda candidate: rates[candidate.name])
    note(f"documents are encoded by {best.name} (documents/s on a sample: {told})")
    return best
