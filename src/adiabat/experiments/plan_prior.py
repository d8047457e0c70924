"""Advice for a budget without runs, from the few published results (Ziarko et al. 2024)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from adiabat.config.budgets import PRETRAINING_SHARE, PlanSection, PlanSettings, RatesSection, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.section import overlaid
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError
from adiabat.core.progress import Watch
from adiabat.core.text import duration, flop
from adiabat.experiments.grid import Tried
from adiabat.experiments.plan_constraints import TOO_LARGE, excluded, fitting, within
from adiabat.results.scaling_result import Advice, Choice, Reason
from adiabat.runs.run_config import without_none
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.frontier import Line
from adiabat.scaling_laws.laws import Method, Option, Way
from adiabat.scaling_laws.recommendation import tokens_at

if TYPE_CHECKING:
    from adiabat.dual_encoder.tower_setup import Loader
    from adiabat.models.towers import DualEncoder

PAPER = "Ziarko et al. 2024"
"""Reference in reports: *Repurposing Language Models into Embedding Models: Finding the Compute-Optimal
Recipe*."""


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A model of the Pythia suite."""

    name: str
    layers: int
    hidden: int
    pretraining_rate: float

    @property
    def parameters(self) -> int:
        """Parameters without embedding tables: weights and biases of a block ``12 h^2 + 13 h``, and the last
        norm ``2 h``.
        """
        return self.layers * (12 * self.hidden**2 + 13 * self.hidden) + 2 * self.hidden


PYTHIA = (
    PublishedModel("EleutherAI/pythia-14m", 6, 128, 1e-3),
    PublishedModel("EleutherAI/pythia-31m", 6, 256, 1e-3),
    PublishedModel("EleutherAI/pythia-70m", 6, 512, 1e-3),
    PublishedModel("EleutherAI/pythia-160m", 12, 768, 6e-4),
    PublishedModel("EleutherAI/pythia-410m", 24, 1024, 3e-4),
    PublishedModel("EleutherAI/pythia-1b", 16, 2048, 3e-4),
    PublishedModel("EleutherAI/pythia-1.4b", 24, 2048, 2e-4),
    PublishedModel("EleutherAI/pythia-2.8b", 32, 2560, 1.6e-4),
)
"""Layers, widths and learning rates of the Pythia configurations (Biderman et al. 2023, table 1, and its
repository).

Ziarko et al. 2024 says that a tenth of these rates lies between 1.2e-5 and 6e-5; of this table a tenth is
1.6e-5 to 1e-4.
"""

BATCH_SIZE, MAX_TOKENS = 1_024, 75
"""Batch size of all its runs; Ziarko et al. 2024, section 4.1."""


def published_rate(name: str) -> float | None:
    """The peak learning rate of a model's pre-training.

    Returns:
        The rate of `PYTHIA` models, by the last part of the name; None for others.
    """
    rates = {PurePath(model.name).name: model.pretraining_rate for model in PYTHIA}
    return rates.get(PurePath(name).name)


BUDGETS = (1.5e15, 6e15, 2.4e16, 9.6e16, 3.8e17, 1.5e18)
"""Budgets in FLOP; Ziarko et al. 2024, section 4.1."""

FULL = Line(-0.21, 8.39)
LORA = Line(-0.22, 8.93)
"""Lines of least loss by budget for full training and LoRA, as printed in Ziarko et al. 2024, section 4.4."""

SWITCH = 9.06e16
"""Budget in FLOP from which LoRA is best; Ziarko et al. 2024, section 4.4. The printed lines, rounded to two
decimals, meet at e^54 = 2.8e23."""


RANK = 64
"""Rank of LoRA: between 32 and 128, which Ziarko et al. 2024 find suitable nearly everywhere."""

FULL_RATE = 3e-5
"""Learning rate of full training if a model's pre-training is unknown; Ziarko et al. 2024, section 4.1, use
1.2e-5 to 6e-5 for Pythia, by size."""

A_STEP = BATCH_SIZE * 2 * MAX_TOKENS
"""Maximum tokens of a batch in the paper."""

BYTES_PER_WEIGHT, BYTES_PER_TRAINED = 4, 12
"""Bytes of a weight in single precision; and of its gradient and the two AdamW moments if it is trained."""

NOTES = (
    "without runs, the choice of method rests on eight sizes of one family, Pythia, "
    "on 200 million English pairs in batches of "
    f"1,024 at 75 tokens ({PAPER}, Repurposing Language Models into Embedding Models)",
    "the paper prints lines of the lowest loss, exp(-0.21 ln C + 8.39) of full training "
    "and exp(-0.22 ln C + 8.93) of LoRA, which meet "
    f"at 2.8e23 FLOP, and a switch at {SWITCH:.3g}; the method follows the switch, "
    "and losses read off the lines hold for its data and "
    "batches",
    "the paper prints no numbers for the best size: to choose among models, "
    "run adiabat scaling at budgets below this one",
)


def by_prior(load: "Loader", settings: PlanSettings, watch: Watch) -> Advice:
    """Advice from published results for a budget."""
    # Every model is checked where it is loaded.
    load = partial(_transformer, load)
    section, reasons = settings.plan, list[Reason]()
    if section.budget_seconds is not None:
        budget = section.budget_seconds * _speed(load, settings, watch)
        speed = f"measured on a few passes of {_measured_model(section)} on this machine"
        reasons.append(time_reason(section.budget_seconds, budget, speed, "this machine"))
        section = section.model_copy(update={"budget": budget})
        settings = settings.model_copy(update={"plan": section})
    assert section.budget is not None, "a plan has a budget or a time"
    budget = section.budget
    method, scarce, usages, choices = _decided(load, settings, "full" if budget < SWITCH else "lora", watch)
    _require_a_step(choices, section)
    best = None
    # Nothing published decides between models, unless tokens are scarce.
    if section.models and (scarce or len(choices) == 1):
        best = max(choices, key=_size)
    if scarce:
        reasons += _of_scarce_tokens(best)
    else:
        reasons += _of_budget(method, budget if best is None else best.flops, budget)
    if best is not None:
        reasons += _of_regime(best)
    return Advice(
        budget=budget,
        budget_seconds=section.budget_seconds,
        data_tokens=section.data_tokens,
        memory=section.memory,
        best=best,
        runner_up=None,
        sure=None,
        candidates=choices,
        excluded=excluded(TOO_LARGE, usages, [choice.option for choice in choices]),
        reasons=reasons,
        additions=[],
        beyond=None,
        settings={} if best is None else _run_settings(best, settings),
        scarce=scarce,
    )


def _size(choice: Choice) -> int:
    return choice.option.size


def _speed(load: "Loader", settings: PlanSettings, watch: Watch) -> float:
    """FLOPs per second of this machine, measured with the first model named, or with the embedded one."""
    from adiabat.experiments.machine_speed import PASSES, measured_speed

    name = _measured_model(settings.plan)
    towers = load(name, settings.encoder if settings.plan.models else EncoderSection())
    speed = measured_speed(towers.query, device=settings.run.device, tokens=MAX_TOKENS)
    watch.note(f"this machine computes {speed:.3g} FLOP per second, measured on {PASSES} passes of {name}")
    return speed


def _measured_model(section: PlanSection) -> str:
    return section.models[0] if section.models else "demo"


def _decided(
    load: "Loader", settings: PlanSettings, method: Method, watch: Watch
) -> tuple[Method, bool, dict[Option, int | None], list[Choice]]:
    """Method, whether tokens rather than the budget decided it, available models, and models that fit into
    memory.
    """
    section = settings.plan
    if section.data_tokens is not None:
        usages = _held(load, settings, "full", watch)
        choices = _chosen(usages, fitting(usages, section.memory), section)
        # Full training, if even the largest model can use all available tokens within the budget.
        if choices and max(choices, key=_size).tokens >= section.data_tokens:
            return "full", True, usages, choices
    usages = _held(load, settings, method, watch)
    takes = "takes {} for weights, gradients and AdamW alone"
    options = within(usages, section.memory, takes=takes, instead="name a smaller model")
    return method, False, usages, _chosen(usages, options, section)


def _require_a_step(choices: Sequence[Choice], section: PlanSection) -> None:
    """Refuse budgets too small for the paper's batch size, which the advice uses."""
    assert section.budget is not None
    least = min(choice.option.flops_per_token for choice in choices) * A_STEP
    if section.budget < least:
        name = "plan.budget" if section.budget_seconds is None else "plan.budget_seconds"
        raise ConfigError(
            f"{name} must pay for a step of {BATCH_SIZE:,} pairs of texts of up to {MAX_TOKENS} "
            f"tokens, {least:.3g} FLOP, got {section.budget:g} FLOP; raise it, "
            "or run a scaling experiment with smaller batches"
        )


def _held(load: "Loader", settings: PlanSettings, method: Method, watch: Watch) -> dict[Option, int | None]:
    """The named models with the memory of weights, gradients and optimizer; the paper's own models if none
    are named.
    """
    if not settings.plan.models:
        return dict.fromkeys(_pythia(method))
    from adiabat.training.flop_count import passed_parameters

    usages: dict[Option, int | None] = {}
    for number, name in enumerate(settings.plan.models):
        watch.progress("setting models up", number, len(settings.plan.models))
        way = _way(name, settings.encoder.blocks, method)
        towers = _built(way, settings, load)
        usages[Option(way, passed_parameters(towers.query))] = _bytes(towers)
    return usages


def _way(name: str, blocks: int | None, method: Method) -> Way:
    return Way("", PurePath(name).name, name, blocks, method, RANK if method == "lora" else None, 0)


def _chosen(
    usages: dict[Option, int | None], options: Sequence[Option], section: PlanSection
) -> list[Choice]:
    """What each model would do with the budget."""
    choices = []
    for option in options:
        tokens = tokens_at(option, section.budget or 0.0, section.data_tokens)
        flops = tokens * option.flops_per_token
        choices.append(Choice(option.way, option.parameters, tokens, flops, None, None, None, usages[option]))
    return choices


def _transformer(load: "Loader", name: str, section: EncoderSection) -> "DualEncoder":
    """A model of a plan; the passes of a static one count no FLOPs, so a budget would pay for any number of
    its tokens.
    """
    from adiabat.models.static import StaticBackbone

    towers = load(name, section)
    if isinstance(towers.query.backbone, StaticBackbone):
        raise ConfigError(
            "plan.models must be transformers, whose FLOPs are counted, got "
            f"{name}, a static model; leave it out"
        )
    return towers


def _built(way: Way, settings: PlanSettings, load: "Loader") -> "DualEncoder":
    from adiabat.dual_encoder.tower_setup import build

    run = _settings(way, settings)
    try:
        return build(run, load).towers
    except ConfigError as fault:
        if way.rank is None:
            raise
        raise ConfigError(
            f"plan.models must take adapters of rank {way.rank}, the best from this "
            f"budget on, {way.model} does not: {fault}; "
            "name a wider model, or a smaller budget"
        ) from fault


def _bytes(towers: "DualEncoder") -> int:
    # Towers may share weights.
    weights = {*towers.query.parameters(), *towers.document.parameters()}
    count = sum(weight.numel() for weight in weights)
    trained = sum(weight.numel() for weight in weights if weight.requires_grad)
    return BYTES_PER_WEIGHT * count + BYTES_PER_TRAINED * trained


def _pythia(method: Method) -> Iterator[Option]:
    """The paper's own models, as examples for a budget; adapters, which add a few percent, are ignored."""
    for model in PYTHIA:
        # LoRA updates its adapters alone, which are left out here.
        updated = model.parameters if method == "full" else 0
        passed = PassedParameters(model.parameters, model.parameters, updated)
        yield Option(_way(model.name, None, method), passed)


def _rate(way: Way) -> float:
    """Learning rate by the paper's rule, if the model's pre-training is known."""
    if way.method == "lora":
        return RatesSection().lora
    known = published_rate(way.model)
    return FULL_RATE if known is None else PRETRAINING_SHARE * known


def _settings(way: Way, settings: PlanSettings, **train: float | int) -> TrainSettings:
    # What the settings state stands above the published regime.
    published = {"train": ScalingSettings().common()["train"], "encoder": {"max_tokens": MAX_TOKENS}}
    stated = {"encoder": settings.encoder.model_dump(exclude_unset=True), "train": train}
    table = overlaid(TrainSettings, Tried(way, _rate(way)).tables(), stated)
    return checked(TrainSettings, overlaid(TrainSettings, published, table))


def _run_settings(best: Choice, settings: PlanSettings) -> dict[str, object]:
    plain = _settings(best.way, settings, budget_flops=best.flops, batch_size=BATCH_SIZE)
    table = overlaid(TrainSettings, plain.model_dump(exclude_unset=True), {"memory": {"cached": True}})
    return without_none(checked(TrainSettings, table).model_dump(mode="json", exclude_defaults=True))


FRONTIER, REGIME = f"{PAPER}, section 4.4", f"{PAPER}, section 4.1"


def time_reason(seconds: float, budget: float, speed: str, source: str) -> Reason:
    """How a time became a budget: at a speed, in words."""
    why = f"the FLOPs of {duration(seconds)} at {budget / seconds:.3g} FLOP per second, {speed}"
    return Reason("budget", flop(budget), why, source)


def tokens_reason(tokens: float, flops: float) -> Reason:
    """Tokens of a recommended run, and what they cost."""
    why = f"all that the budget pays for and the data have; they take {flops:.3g} FLOP"
    return Reason("tokens", f"{tokens:.3g}", why, "Kaplan et al. 2020: C = 2 (N_F + N_B + N_U) D")


def _of_budget(method: Method, spent: float, budget: float) -> Iterator[Reason]:
    """Advice if the budget is the limit."""
    line = FULL if method == "full" else LORA
    below = f"full training below {SWITCH:.3g} FLOP, LoRA from there on; the budget is {budget:.3g} FLOP"
    yield Reason("method", method, below, FRONTIER)
    read_off = (
        f"of the paper's data and batches: exp({line.slope} ln C + {line.intercept}) at {spent:.3g} FLOP"
    )
    yield Reason("loss", f"{line.at(spent):.2f}", read_off, FRONTIER)
    if method == "lora":
        yield Reason("rank", str(RANK), "32 to 128 suit most cases", f"{PAPER}, section 4.6")


def _of_scarce_tokens(best: Choice | None) -> Iterator[Reason]:
    """Advice if the tokens are the limit."""
    why = (
        "the budget pays for all available tokens with any model; full training "
        "or LoRA of a high rank is then best"
    )
    yield Reason("method", "full", why, f"{PAPER}, appendix D")
    size = "the largest that memory allows" if best is None else best.way.title
    yield Reason("model", size, "larger models learn more from each token", f"{PAPER}, appendix D")


def _of_regime(best: Choice) -> Iterator[Reason]:
    """The published settings of a run."""
    yield tokens_reason(best.tokens, best.flops)
    batch = f"{BATCH_SIZE:,} queries of up to {MAX_TOKENS} tokens"
    yield Reason("batch", batch, "the paper's, with cached gradients to spare memory", REGIME)
    rule = (
        "the paper's for LoRA; otherwise a tenth of the highest rate of the model's pre-training, or of "
        "Pythia's where that is unknown"
    )
    yield Reason("rate", f"{_rate(best.way):g}", rule, REGIME)
    yield Reason("temperature, decay, schedule", "1/40, 0.1, cosine to a tenth", "the paper's", REGIME)
