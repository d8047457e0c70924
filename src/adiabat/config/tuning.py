"""Settings of ``adiabat tune``; the defaults are those of Vasilyev et al. 2024."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    Field,
    PlainValidator,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from adiabat.config.faults import ABSENT, Need
from adiabat.config.section import (
    MOST_VALUES,
    Amount,
    MisfitError,
    OptimizerName,
    Seconds,
    Section,
    SpacedValues,
    Text,
    Texts,
    no_text,
    overlaid,
)
from adiabat.config.shared import DataSection, HeldOutSection, RankingTables, RetainSection, StepsRunSection
from adiabat.config.training_choices import (
    DRAWING_NEGATIVES,
    HIGHEST,
    Method,
    Negatives,
    RateScaling,
    Schedule,
    TripletTuning,
    TuneLoss,
)
from adiabat.core.wording import call_of

# --- Data ---


class TuneDataSection(DataSection, HeldOutSection):
    """``[data]``: tuning and validation data, with documents from a store."""

    hold_out: Literal["queries", "documents"] = "queries"
    """Unit that is held out for validation: single queries, or documents with all their queries, so that
    validation has new documents. If relevance ties most queries together, queries are held out."""

    needs = (*HeldOutSection.needs, Need("hold_out", "validation", ABSENT))
    """Nothing is held out of the data beside a validation file."""


def value_of(table: object, name: str) -> Any:
    """An entry of a table; None if it has none, or is no table."""
    return table.get(name) if isinstance(table, Mapping) else getattr(table, name, None)


def _beyond(table: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of nested tables that differ from those below; a table with a `kind` is one entry."""
    # Equal settings are those of the recipe, whoever stated them.
    different = {name: value for name, value in table.items() if name not in below or value != below[name]}
    for name, value in different.items():
        if isinstance(value, Mapping) and "kind" not in value and isinstance(below.get(name), Mapping):
            different[name] = _beyond(value, below[name])
    return different


# --- Recipes ---

RecipeName = Literal["quick", "safe", "paper"]

RECIPES: Mapping[RecipeName, Mapping[str, Any]] = {
    "quick": {
        "tune": {
            "evidence": "decides",
            "learning_rate": 1e-5,
            "loss": {"kind": "store_softmax"},
            "keep": "ranking",
            "batches_per_epoch": 50,
            "max_epochs": 40,
            "idle_epochs": 4,
            "budget_seconds": 600.0,
        },
        "data": {"hold_out": "documents", "max_validation": 200},
        "guard": {"probes": "sample", "limit": 0.1, "action": "back"},
        "rehearsal": {"weight": 100.0},
    },
    "safe": {
        "tune": {"evidence": "decides", "batches_per_epoch": 100, "max_epochs": 10},
        "rate_search": {"kind": "safe"},
        "rehearsal": {},
    },
    "paper": {},
}
"""Settings of the recipes, under those that a user states; ``paper`` is the regime of Vasilyev et al. 2024,
the defaults."""

DEFAULT_RECIPE: RecipeName = "quick"
"""Recipe of a job whose settings state none of `OWN_REGIME`."""

OWN_REGIME = frozenset(("recipe", "learning_rate", "loss", "negatives"))
"""Settings of `[tune]` that choose a regime, as the kind of a rate search does; beside them the others keep
the defaults of Vasilyev et al. 2024."""


class TuneSection(Section):
    """``[tune]``: loss, method, learning rate and length. The defaults are those of Vasilyev et al. 2024."""

    recipe: RecipeName = "paper"
    """Defaults of the other settings: those of Vasilyev et al. 2024 (paper); the largest rate within the
    guard's limit, and rehearsal (safe); or the softmax over the store, rehearsal, a choice by ranking and a
    time limit (quick). `adiabat tune --recipe NAME --dry-run` prints them. Where a job of `adiabat tune`
    states neither a recipe nor a learning rate, loss or negatives, it is quick."""
    learning_rate: Annotated[
        PositiveFloat, no_text('a number > 0, or left out where rate_search = "safe" or "range" finds one')
    ] = 5e-8
    """Peak learning rate, unless `rate_search` finds one."""
    evidence: Literal["decides", "told", "off"] = "off"
    """Measure first what better query vectors could gain, on the training and validation queries, as `adiabat
    advise` does. Where the advice is not to tune, keep the start (decides), or tell it and go on (told); off
    measures nothing."""
    budget_seconds: Seconds | None = None
    """Time limit from the start of the command, or of the call in Python, to the written page, over all
    resumed parts: seconds, or text such as "10min". At the start it limits `rate_search.steps` and
    `max_epochs` to what fits by the measured speed. None sets no limit."""
    batch_size: PositiveInt = 14
    """Queries per optimizer step."""
    loss: TuneLoss = TripletTuning()
    """Loss to minimise."""
    negatives: Negatives = Negatives()
    """Source of the negatives of a query."""
    method: Method = Method()
    """Weights that are tuned."""
    freeze: Texts = ("embeddings",)
    """Weights to freeze, by the names of `adiabat.models.freezing`."""
    optimizer: OptimizerName = "adamw"
    """Optimizer (`adiabat.training.optimizers`)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Weight decay of all tuned weights."""
    schedule: Schedule = Schedule()
    """Learning-rate schedule after the warm-up."""
    warmup_steps: Amount = 0
    """Steps over which the learning rate rises to its peak."""
    batch_scaling: RateScaling = RateScaling()
    """Scaling of the learning rate with the batch size."""
    batches_per_epoch: PositiveInt = 1_000
    """Optimizer steps per epoch; each epoch ends with a validation."""
    max_epochs: PositiveInt = 1_000
    """Maximum number of epochs, and the length of linear, quadratic and cosine schedules."""
    idle_epochs: PositiveInt = 10
    """Stop after this many epochs without an improvement by `keep`."""
    keep: Literal["ranking", "both", "loss", "last"] = "both"
    """Weights to save: the best of the epoch that ranks the validation queries best (nDCG@10 in the whole
    store), of shares of its change, and of linear maps of the query vectors, among those that lose nothing
    on `retain` (ranking); or those of the epoch with the lowest validation loss and errors (both), with the
    lowest validation loss (loss), or those after `max_epochs` (last)."""
    dropout: bool = False
    """Apply the model's dropout during tuning."""
    l2_to_start: Annotated[float, Field(ge=0, le=HIGHEST)] = 0.0
    """Strength of L2 regularization towards the initial weights: adds this value times ``w - w_0`` to the
    gradient of each weight."""

    needs = (
        Need("idle_epochs", "keep", ("ranking", "both", "loss")),
        Need("negatives", "loss", DRAWING_NEGATIVES, "which draws none"),
    )
    """Early stopping applies only to the best weights, and negatives are not drawn for the softmax over the
    store.
    """

    def faults(self) -> Iterator[tuple[str, str]]:
        """The warm-up ends within the run, and a teacher's scores are those of listed documents."""
        if self.loss.needs_scores and self.negatives.kind != "examples":
            told = (
                f'must be "examples" with tune.loss = {self.loss.kind}, whose teacher scored the listed ones'
            )
            yield "negatives", f"{told}, got {self.negatives.kind}; leave it out"
        steps = self.max_epochs * self.batches_per_epoch
        if self.warmup_steps > steps:
            yield (
                "warmup_steps",
                f"must be at most max_epochs x batches_per_epoch = {steps}, "
                f"got {self.warmup_steps}; lower it",
            )


# --- Drift and rehearsal ---


class ProbedSection(Section):
    """A search with probe texts before and after tuning."""

    store: Text | None = None
    """Store to search with the probes; None takes the store of the job."""
    depth: Annotated[int, Field(ge=2)] = 100
    """Number of documents per probe whose order is compared."""


def _limit(drift: object) -> float | Literal["noise"]:
    """A limit as it is given, checked by itself: each of its types would report its own fault."""
    # A union of both types would tell two faults for one wrong value.
    if drift == "noise":
        return "noise"
    if isinstance(drift, bool) or not isinstance(drift, int | float) or not 0 < drift <= sys.float_info.max:
        raise MisfitError('a number > 0, or "noise"')
    return float(drift)


class GuardSection(ProbedSection):
    """``[guard]``: measure at every validation how far the search results of unlabelled probe texts drift,
    and limit the drift.
    """

    probes: Text = "default"
    """File of probe texts, ``default`` for the 680 packaged with adiabat, or ``sample`` for a quarter of
    these."""
    measure: Literal["overlap loss", "margins", "turn"] = "overlap loss"
    """Measure of drift that `limit` applies to (`adiabat.adiabatic.drift`); the log has all of them."""
    limit: Annotated[float | Literal["noise"], PlainValidator(_limit)] | None = None
    """Maximum drift; None sets no limit. ``noise`` derives it from the drift of the untuned tower when only
    the punctuation at the end of the probes changes (`adiabat.adiabatic.drift.limits_of`)."""
    action: Literal["stop", "back", "soften"] = "stop"
    """Action when drift exceeds the limit: stop; go back to the best epoch and continue at half the rate
    (back); or continue, and finally move the weights towards the initial ones until their drift is within the
    limit (soften, `adiabat.adiabatic.regularization.soften`)."""


class RehearsalSection(Section):
    """``[rehearsal]``: a second loss that keeps the vectors of unlabelled texts near those of the untuned
    tower.
    """

    texts: Text = "rehearsal"
    """File of texts, or ``rehearsal`` for those packaged with adiabat, which cover the languages and fields
    of its probes. The texts must not contain probes on which drift is measured."""
    weight: PositiveFloat = 10.0
    """Weight of the rehearsal loss: ``1 - cos`` between the vectors of the tuned and the untuned tower."""
    texts_per_step: PositiveInt = 14
    """Number of texts drawn per step."""


# --- The search for a rate ---


class RateSearchSection(SpacedValues):
    """``[rate_search]``: short runs that find the learning rate, in place of `tune.learning_rate`.

    A search for a safe rate goes from the highest rate down. A run stops when its drift exceeds the guard's
    limit; the first rate whose run stays within the limit to the end is the result. A range test makes a run
    of every rate.
    """

    bare = "kind"
    kind: Literal["safe", "range"] = "safe"
    """Find the largest rate whose drift stays within the guard's limit (safe), or of all rates the one with
    the lowest validation loss within that limit (range)."""
    low: PositiveFloat = 1e-8
    """Lowest learning rate."""
    high: PositiveFloat = 1e-5
    """Highest learning rate."""
    count: Annotated[int, Field(ge=2, le=MOST_VALUES)] = 10
    """Number of rates, evenly spaced on a logarithmic scale from low to high."""
    steps: PositiveInt = 1_000
    """Optimizer steps of each run; those of a range test are the first steps of a run at its rate."""
    checks: PositiveInt = 20
    """Maximum number of drift measurements per run, evenly spaced over its steps; a range test measures after
    each epoch."""
    seeds: PositiveInt = 1
    """Number of runs per rate, with consecutive seeds from `run.seed`; all of them must stay within the
    limit."""

    needs = (Need("checks", "kind", ("safe",)),)
    """A range test validates after each epoch."""


# --- Tables of the verbs ---


class TuneTables(RankingTables):
    """Tables of tuning runs, also used by sweeps."""

    data: TuneDataSection = TuneDataSection()
    tune: TuneSection = TuneSection()
    guard: GuardSection | None = None
    rehearsal: RehearsalSection | None = None
    run: StepsRunSection = StepsRunSection()


class TuneSettings(TuneTables):
    """All settings of ``adiabat tune`` and ``adiabat safe-rate``."""

    rate_search: RateSearchSection | None = None
    retain: Annotated[tuple[RetainSection, ...], Field(strict=False)] = ()
    """Data sets that must not get worse, before those of ``--retain``: half of the queries of each, at most
    250, choose among candidates for the result, and the other half are for `adiabat evaluate`."""

    @model_validator(mode="before")
    @classmethod
    def _with_recipe(cls, table: Any) -> Any:
        tune, data = (value_of(table, name) for name in ("tune", "data"))
        name = value_of(tune, "recipe")
        if not (isinstance(name, str) and name in RECIPES):
            return table
        # A copy: what follows takes settings out of it.
        recipe = {key: dict(section) for key, section in RECIPES[cast("RecipeName", name)].items()}
        # What the stated settings leave without effect.
        if value_of(tune, "learning_rate") is not None:
            recipe.pop("rate_search", None)
        if value_of(table, "rate_search") not in (None, False):
            recipe.get("tune", {}).pop("learning_rate", None)
        if value_of(data, "validation") is not None:
            recipe.pop("data", None)
        if value_of(tune, "keep") == "last":
            recipe.get("tune", {}).pop("idle_epochs", None)
        return overlaid(cls, recipe, table)

    def overlay(self) -> dict[str, Any]:
        """The stated settings, without those that the recipe has too: under another recipe these would count
        as stated.
        """
        return _beyond(self.model_dump(exclude_unset=True), RECIPES[self.tune.recipe])

    def with_usual_recipe(self) -> Self:
        """The settings of `DEFAULT_RECIPE`, unless these choose a regime."""
        stated = self.tune.model_fields_set if "tune" in self.model_fields_set else set()
        # A search that states no kind belongs to whichever recipe is taken.
        searches = self.rate_search is not None and "kind" in self.rate_search.model_fields_set
        if OWN_REGIME & stated or searches:
            return self
        from adiabat.config.reader import checked

        return checked(
            type(self),
            overlaid(type(self), self.model_dump(exclude_unset=True), {"tune": {"recipe": DEFAULT_RECIPE}}),
        )

    def sweep_fault(self) -> str | None:
        """Why these settings are no run of a sweep; None if they are."""
        if self.rate_search is not None:
            finder = call_of("safe-rate")
            return f"rate_search must be off in a sweep, whose runs have a rate each; {finder} finds one"
        if self.tune.budget_seconds is not None:
            return (
                "tune.budget_seconds must be left out in a sweep, whose runs have "
                "equal lengths; set tune.max_epochs"
            )
        if self.retain:
            return "retain must be left out in a sweep, which compares its runs itself"
        if self.tune.evidence != "off":
            got = self.tune.evidence
            return (
                f"tune.evidence must be off in a sweep, which makes all of its runs, got {got}; leave it out"
            )
        return None

    @property
    def trial_steps(self) -> int:
        """Steps of a trial of the rate search; in a range test it is the start of a run."""
        assert self.rate_search is not None, "asked of a search"
        # The trial of a range test is the start of the run, so it is no longer than the run.
        steps = self.rate_search.steps
        return (
            steps
            if self.rate_search.kind == "safe"
            else min(steps, self.tune.max_epochs * self.tune.batches_per_epoch)
        )

    @property
    def continues_trial(self) -> bool:
        """Whether the run goes on from the trial of its rate, which ended with a whole epoch."""
        is_range = self.rate_search is not None and self.rate_search.kind == "range"
        return is_range and self.trial_steps % self.tune.batches_per_epoch == 0

    @property
    def watched(self) -> GuardSection | None:
        """The guard of the run; a run whose rate is searched for always has a guard with a limit."""
        if self.rate_search is None:
            return self.guard
        # Without a limit every rate would pass; `noise` is the one that needs no number.
        guard = self.guard or GuardSection()
        return guard.model_copy(update={"limit": guard.limit or "noise"})

    @model_serializer(mode="wrap")
    def _without_unused_rate(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A search finds the rate, and the default would be taken for it.
        tables: dict[str, Any] = handler(self)
        if self.rate_search is not None and "tune" in tables:
            tables["tune"].pop("learning_rate", None)
        return tables

    def faults(self) -> Iterator[tuple[str, str]]:
        """The search has a guard, and the warm-up ends within its runs."""
        search, warmup = self.rate_search, self.tune.warmup_steps
        if search is None:
            return
        if self.guard is None and "guard" in self.model_fields_set:
            told = f'must be on with rate_search = "{search.kind}", which measures drift, got false'
            yield "guard", f"{told}; leave it out"
        if warmup >= search.steps:
            told = (
                f"must be below rate_search.steps = {search.steps}, got {warmup}: no run would reach its rate"
            )
            yield "tune.warmup_steps", f"{told}; raise rate_search.steps"

    def every_need(self) -> Iterator[Need]:
        """A search finds the rate, and its guard always has a limit; other guards act only with a limit."""
        yield Need("tune.learning_rate", "rate_search", ABSENT)
        if self.guard is not None and self.rate_search is None:
            yield Need("guard.action", "guard.limit")
