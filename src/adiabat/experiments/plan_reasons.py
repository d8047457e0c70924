"""Why a plan says what it says: each value with its reason and where that comes from (Ziarko et al. 2024)."""

from collections.abc import Iterator

from adiabat.config.budgets import PRETRAINING_SHARE, PlanSection
from adiabat.core.text import duration, flop, share
from adiabat.experiments.plan_prior import PAPER
from adiabat.results.scaling_result import Reason, ScalingRun
from adiabat.scaling_laws.fitting import CONFIDENCE
from adiabat.scaling_laws.recommendation import Candidate, Recommendation

SHOWN = 4
"""Options that are named where drawn runs disagree."""

OWN, RULES = "runs of the scaling experiment", f"{PAPER}, section 4.1 and tables 3 and 4"


def reasons_of(
    found: Recommendation, own: ScalingRun, section: PlanSection, *, largest: float, missed: float | None, temperature: float | None
) -> list[Reason]:
    """Why each value is recommended.

    Args:
        missed: By how much of the losses of that budget the law of this kind missed them when it was fitted without; None where it was not.
        temperature: Of the runs; None where rows alone are there, which do not say it.
    """
    reasons = [*_of_time(found, section), *_of_method(found), *_of_tokens(found, section), *_of_regime(own, temperature)]
    if found.best.flops > largest:
        times = f"{found.best.flops / largest:.3g} times the largest budget of the runs"
        said = "" if missed is None else f"; fitted without that budget, this one missed its losses by {share(missed)}"
        reasons.append(
            Reason("reach", times, f"laws say less the further they reach, and the interval is that of their fit alone{said}", OWN)
        )
    return reasons


def _of_time(found: Recommendation, section: PlanSection) -> Iterator[Reason]:
    if section.budget_seconds is not None:
        speed = f"{found.budget / section.budget_seconds:.3g} FLOP a second, as the fastest run of this model and method had them"
        yield Reason("budget", flop(found.budget), f"what {duration(section.budget_seconds)} are enough for at {speed}", OWN)


def _of_method(found: Recommendation) -> Iterator[Reason]:
    """Method and model, and how much of it is trained."""
    best, other = found.best, found.runner_up
    way = best.option.way
    ahead = "the only one among the candidates that has a law"
    if other is not None:
        ahead = (
            f"its predicted loss of {best.law.value:.4f} is below that of {other.option.way.title}, {other.law.value:.4f}; "
            f"{share(found.sure)} of laws fitted to runs drawn again agree that it is ahead"
        )
    yield Reason("method", str(way.kind), ahead, OWN)
    size = f"{best.option.size:,} parameters without the table of tokens"
    yield Reason("model", f"{way.sized_name}, {size}", f"the least predicted loss of all candidates; {_wins(found)}", OWN)
    tried = {(one.option.way.rank, one.option.way.frozen) for one in found.candidates if one.option.way.kind == way.kind}
    why = "the least predicted loss of what was swept" if len(tried) > 1 else "no other was swept"
    if way.rank is not None:
        yield Reason("rank", str(way.rank), f"{why}; 32 to 128 serve nearly everywhere", f"{OWN}; {PAPER}, section 4.6")
    if way.frozen:
        yield Reason("frozen", f"{way.frozen} leading blocks", why, OWN)


def _wins(found: Recommendation) -> str:
    """The options that laws of drawn runs take for the best, as many as 95 % of these laws take, with their tokens."""
    ranked, told, whole = sorted(found.candidates, key=lambda one: -one.wins), list[Candidate](), 0.0
    while whole < CONFIDENCE and len(told) < len(ranked):
        told.append(ranked[len(told)])
        whole += told[-1].wins
    tokens = sorted(one.tokens for one in told)
    reach = f"{tokens[0]:.3g} tokens" if len(told) == 1 else f"{tokens[0]:.3g} to {tokens[-1]:.3g} tokens"
    named = "; ".join(f"{one.option.way.title} by {share(one.wins)}" for one in told[:SHOWN])
    more = f" and {len(told) - SHOWN} others" if len(told) > SHOWN else ""
    return f"best by laws fitted to runs drawn again: {named}{more} ({reach})"


def _of_tokens(found: Recommendation, section: PlanSection) -> Iterator[Reason]:
    best = found.best
    why = f"what the budget pays for, at {best.option.flops_per_token:.3g} FLOP a token"
    if section.data_tokens is not None and best.tokens >= section.data_tokens:
        why = f"all there are; they take {best.flops:.3g} FLOP, and the rest of the budget is left"
    yield Reason("tokens", f"{best.tokens:.3g}", why, "Kaplan et al. 2020: C = 2 (N_F + N_B + N_U) D")


def _of_regime(own: ScalingRun, temperature: float | None) -> Iterator[Reason]:
    yield Reason("batch", f"{own.batch_size} queries", "as in the runs: the loss of another batch is another loss", OWN)
    rules = {"lora": "1e-3 for LoRA", "bias": "1e-2 for biases"}
    rule = rules.get(own.way.method, f"{PRETRAINING_SHARE:g} of the highest rate of a model's pre-training")
    yield Reason("rate", f"{own.learning_rate:g}", f"as in the runs; the paper takes {rule}", RULES)
    if temperature is not None:
        yield Reason("temperature", f"{temperature:g}", "as in the runs; the paper takes 1/40", f"{PAPER}, section 4.1")
