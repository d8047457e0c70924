"""What to train for a budget where there are no runs: what was published, and how little that is (mission B8)."""

from collections.abc import Iterator
from pathlib import PurePath

from adiabat.config import PlanSettings, SweepSettings, TrainSettings, checked
from adiabat.config.compare import laid_over
from adiabat.config.sweep import RatesSection
from adiabat.contrastive.building import Loader, build
from adiabat.errors import ConfigError
from adiabat.jobs.descriptions import without_none
from adiabat.measure.sweep_results import Advice, Choice, Reason
from adiabat.model.towers import DualEncoder
from adiabat.plan.flops import PassedParameters
from adiabat.plan.published import FULL, LORA, PAPER, PYTHIA, SWITCH
from adiabat.plan.recipe import points_at
from adiabat.plan.runs import Method, Option, Way
from adiabat.sweep.options import within
from adiabat.sweep.spec import Tried
from adiabat.train.counts import passed_parameters
from adiabat.watch import Watch

RANK = 64
"""Of LoRA: between 32 and 128, which source 001 finds to serve nearly everywhere."""

RATES: dict[Method, float] = {"full": 3e-5, "lora": RatesSection().lora}
"""Source 001, section 4.1: full training of Pythia takes 1.2e-5 to 6e-5 by size."""

BYTES_PER_WEIGHT, BYTES_PER_TRAINED = 4, 12
"""Of a weight in single precision; and of its gradient and the two means of AdamW, where it is trained."""

NOTES = (
    "there are no runs: what is said of the method rests on eight sizes of one family, Pythia, on 200 million English pairs in batches of "
    f"1,024 at 75 tokens ({PAPER}, Repurposing Language Models into Embedding Models)",
    f"the paper prints lines of the least loss, exp(-0.21 ln C + 8.39) of full training and exp(-0.22 ln C + 8.93) of LoRA, which meet at "
    f"2.8e23 FLOP, and a switch at {SWITCH:.3g}; the method goes by the switch, and a loss read off the lines is of its data and batches",
    "it prints no figure of the best size: which of several models is for a sweep to say (adiabat sweep, at budgets below this one)",
)


def by_prior(load: Loader, settings: PlanSettings, watch: Watch) -> Advice:
    """What was published says of a budget.

    Args:
        load: Gives a model by its name.
        settings: Budget, models, memory, tokens.
        watch: Whom to tell.

    Returns:
        The method, and what each model takes; one model alone is recommended, of several nothing tells which.

    Raises:
        AdiabatError: If a model cannot be loaded.
        ConfigError: If the budget does not pay for a token, or memory suffices for none.
    """
    section = settings.plan
    budget = section.budget
    assert budget is not None, "time is for plans with runs"
    method: Method = "full" if budget < SWITCH else "lora"
    line = FULL if method == "full" else LORA
    held = dict(_asked(load, settings, method, watch)) if section.models else dict.fromkeys(_pythia(method))
    takes = "takes {} for weights, gradients and AdamW alone"
    small = within(held, section.memory, takes=takes, instead="name a smaller model")
    choices = [_choice(option, held[option], budget, section.data_tokens) for option in small]
    if max(one.tokens for one in choices) < 1:
        raise ConfigError(f"plan.budget must pay for tokens, got {budget:g}: not for one; raise it")
    best = choices[0] if len(choices) == 1 and section.models else None
    spent = budget if best is None else best.flops
    return Advice(
        budget=budget,
        budget_seconds=None,
        data_tokens=section.data_tokens,
        memory=section.memory,
        best=best,
        runner_up=None,
        sure=None,
        candidates=choices,
        too_large=[option.way.title for option in held if option not in small],
        unpredicted=[],
        reasons=list(_reasons(method, line.at(spent), spent)),
        additions=[],
        beyond=None,
        settings={} if best is None else _run_settings(best, settings),
    )


def _asked(load: Loader, settings: PlanSettings, method: Method, watch: Watch) -> Iterator[tuple[Option, int | None]]:
    """The models that were named, and what weights, gradients and optimizer take."""
    for number, name in enumerate(settings.plan.models):
        watch.progress("setting models up", number, len(settings.plan.models))
        way = Way("", PurePath(name).name, name, settings.encoder.blocks, method, RANK if method == "lora" else None, 0)
        towers = _built(way, settings, load)
        yield Option(way, passed_parameters(towers.query)), _bytes(towers)


def _built(way: Way, settings: PlanSettings, load: Loader) -> DualEncoder:
    run = _settings(way, settings)
    try:
        return build(run, load).towers
    except ConfigError as fault:
        if way.rank is None:
            raise
        raise ConfigError(
            f"plan.models must take adapters of rank {way.rank}, which serve best from this budget on, {way.model} does not: {fault}; "
            "name a wider model, or a smaller budget"
        ) from fault


def _bytes(towers: DualEncoder) -> int:
    weights = {id(one): one for tower in (towers.query, towers.document) for one in tower.parameters()}.values()
    trained = sum(one.numel() for one in weights if one.requires_grad)
    return BYTES_PER_WEIGHT * sum(one.numel() for one in weights) + BYTES_PER_TRAINED * trained


def _pythia(method: Method) -> Iterator[Option]:
    """The source's own models, to show what a budget is; adapters add a few percent, which are left out."""
    for one in PYTHIA:
        way = Way("", PurePath(one.name).name, one.name, None, method, RANK if method == "lora" else None, 0)
        yield Option(way, PassedParameters(one.parameters, one.parameters, one.parameters if method == "full" else 0))


def _choice(option: Option, held: int | None, budget: float, data_tokens: float | None) -> Choice:
    tokens = float(points_at({option: budget}, data_tokens).tokens[0])
    return Choice(option.way, option.parameters, tokens, tokens * option.flops_per_token, None, None, None, held)


def _settings(way: Way, settings: PlanSettings, **train: float) -> TrainSettings:
    own = laid_over(Tried(way, RATES[way.method]).tables(), {"encoder": settings.encoder.model_dump(exclude_unset=True), "train": train})
    return checked(TrainSettings, laid_over({"train": SweepSettings().common()["train"]}, own))


def _run_settings(best: Choice, settings: PlanSettings) -> dict[str, object]:
    whole = _settings(best.way, settings, budget_flops=best.flops)
    return without_none(whole.model_dump(mode="json", exclude_defaults=True))


def _reasons(method: Method, loss: float, budget: float) -> Iterator[Reason]:
    side, line = ("below", "FULL") if method == "full" else ("from", "LORA")
    frontier, regime = f"{PAPER}, section 4.4", f"{PAPER}, section 4.1"
    yield Reason("method", method, f"the budget lies {side} the published switch of {SWITCH:.3g} FLOP", frontier)
    told = f"of the paper's data and batches; {line} of adiabat.plan.published at {budget:.3g} FLOP, as printed"
    yield Reason("loss", f"{loss:.2f}", told, frontier)
    if method == "lora":
        yield Reason("rank", str(RANK), "32 to 128 serve nearly everywhere", f"{PAPER}, section 4.6")
    rate = "of Pythia; others take a tenth of the highest rate of their pre-training" if method == "full" else "of LoRA"
    yield Reason("rate", f"{RATES[method]:g}", rate, regime)
    yield Reason("temperature, decay, schedule", "1/40, 0.1, cosine to a tenth", "the paper's regime", regime)
