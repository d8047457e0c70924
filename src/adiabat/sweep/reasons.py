"""Why a plan says what it says: each value with its reason and where that comes from (mission B8)."""

from collections.abc import Iterator

from adiabat.config.plan import PlanSection
from adiabat.config.sweep import PRETRAINING_SHARE
from adiabat.measure.sweep_results import Reason, SweepRun
from adiabat.plan.recipe import Recommendation

OWN, RULE = "runs of the sweep", "source 001, section 4.1 and tables 3 and 4"


def reasons_of(found: Recommendation, own: SweepRun, section: PlanSection, largest: float) -> list[Reason]:
    """Why each value is recommended.

    Args:
        found: The recommendation.
        own: A run of the sweep that trains the same model by the same method.
        section: What was asked.
        largest: Budget of the runs, in FLOP.

    Returns:
        In the order in which they are decided.
    """
    return list(_reasons(found, own, section, largest))


def _reasons(found: Recommendation, own: SweepRun, section: PlanSection, largest: float) -> Iterator[Reason]:
    best, other = found.best, found.runner_up
    way = best.option.way
    if other is None:
        ahead = "the only method whose runs suffice for a law"
    else:
        ahead = (
            f"its predicted loss of {best.law.value:.4f} is below that of {other.option.way.title}, {other.law.value:.4f}; "
            f"{found.sure:.0%} of laws fitted to runs drawn again agree that it is ahead"
        )
    yield Reason("method", str(way.kind), ahead, OWN)
    size = f"{best.option.parameters.forward:,} parameters without the table of tokens"
    yield Reason("model", f"{way.name}, {size}", "the least predicted loss of all sizes of its family", OWN)
    spent = f"{best.option.flops_per_token:.3g} FLOP a token"
    if section.data_tokens is not None and best.tokens >= section.data_tokens:
        why = f"all there are; at {spent} they take {best.flops:.3g} FLOP, and the rest of the budget is left"
    else:
        why = f"what the budget pays for, at {spent}"
    yield Reason("tokens", f"{best.tokens:.3g}", why, "mission B4: C = 2 (N_F + N_B + N_U) D")
    if way.rank is not None:
        served = "the best of the ranks that were swept; 32 to 128 serve nearly everywhere"
        yield Reason("rank", str(way.rank), served, f"{OWN}; source 001, section 4.6")
    if way.frozen:
        yield Reason("frozen", f"{way.frozen} leading blocks", "the best of the shares that were swept", OWN)
    yield Reason("batch", f"{own.batch_size} queries", "as in the runs: the loss of another batch is another loss", OWN)
    rules = {"lora": "the rate of LoRA", "bias": "the rate of biases"}
    rule = rules.get(way.method, f"{PRETRAINING_SHARE:g} of the highest rate of the model's pre-training")
    yield Reason("rate", f"{own.learning_rate:g}", f"as in the runs; the source takes {rule}", RULE)
    if found.budget > largest:
        times = f"{found.budget / largest:.3g} times the largest budget of the runs"
        yield Reason("reach", times, "laws say less the further they reach; the interval is that of their fit alone", "LOG.md")
