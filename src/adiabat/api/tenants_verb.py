"""`adiabat.tune_tenants`: a query tower for each tenant of one store."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adiabat.adiabatic.tenant_checks import require_tenants, rules_of
from adiabat.api.arguments import (
    Data,
    PathLike,
    Retained,
    SettingsLike,
    data_of,
    path_of,
    place_of,
    require_model,
    retained_sets,
    settings_of,
)
from adiabat.api.call import Call, Progress
from adiabat.api.evaluate_verb import evaluate
from adiabat.api.repeated import Asked
from adiabat.api.tune_verb import context_of, tune_in, with_retained
from adiabat.api.with_page import with_page
from adiabat.config.tenant_towers import TenantSettings
from adiabat.core.errors import DivergedError
from adiabat.core.progress import Watch
from adiabat.core.provenance import now, versions
from adiabat.core.text import counted, duration
from adiabat.core.wording import call_of, option, typed_command, written
from adiabat.data.tenants import read_tenants
from adiabat.models.model_paths import Model, name_of, require_names, require_reachable
from adiabat.results.evaluation_result import Change, Result
from adiabat.results.record import read_result
from adiabat.results.tenants_result import Tenant, TenantsResult
from adiabat.runs.output_dir import claimed_for_jobs, write_report
from adiabat.runs.run_config import Job, is_job, require_same
from adiabat.stats.significance import benjamini_hochberg

if TYPE_CHECKING:
    from adiabat.adiabatic.tenant_choice import TowerChoice
    from adiabat.adiabatic.tenant_data import DividedQueries, TenantQueries
    from adiabat.adiabatic.tuning_context import TuningContext

OWN, AVERAGE, EVALUATION = "own", "average", "evaluation"
"""Folders of a tenant: its own tower, the average of that and the shared one, and the verdict on its
choice."""


def tune_tenants(
    model: Model,
    store: PathLike,
    data: Data,
    out: PathLike,
    *,
    by: str,
    retain: Sequence[Retained] = (),
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> TenantsResult:
    """Tune a query tower for each of several tenants who search one store, and one for all of them.

    The queries of all tenants are divided together for training, validation and test. Each tenant then takes
    the tower that ranks its validation queries best: the shared one, its own, the average of both weights
    (Wortsman et al. 2022), or the untuned one. A tenant with few queries takes the shared one. Test queries,
    which chose nothing, give each tenant a verdict. A time limit is that of each job.

    Args:
        model: As in `tune`.
        store: As in `tune`.
        data: Queries with positives of all tenants: a file, or rows; or a folder with a file or BEIR folder
            for each tenant.
        out: Directory of all jobs, of which each is a MODEL.
        by: Column with the name of a row's tenant; ``file`` for a folder.
        retain: As in `tune`: no tower may lose on these sets.
        resume: Continue an interrupted call.
        exist_ok: As in `tune`.
        settings: `TenantSettings`, a TOML file or nested dicts; ``adiabat settings tune-tenants`` lists them.
        progress: As in `tune`.
        **options: Single settings, as in `tune`, such as ``fewest=50`` or ``test_fraction=0.3``.

    Returns:
        The record: for each tenant its tower as a MODEL, and what that changed.

    Raises:
        AdiabatError: As in `tune`, or if a row names no tenant.

    Example:
        >>> store = adiabat.embed("demo", "corpus.jsonl", out="store")
        >>> options = {"recipe": "paper", "max_epochs": 1, "batches_per_epoch": 2, "test_fraction": 0.4}
        >>> towers = adiabat.tune_tenants("demo", store, "tenants.jsonl", "towers", by="tenant", **options)
        >>> [tenant.name for tenant in towers.tenants]
        ['chemists', 'physicists']
    """
    chosen = settings_of(TenantSettings, settings, options, section="tune", function="tune_tenants")
    chosen = with_retained(chosen.with_usual_recipe(), retain)
    require_model(model, "model")
    folder, source, store_path = place_of(out), data_of(data, "data"), path_of(store, "store")
    asked = Asked.of(
        "tune_tenants", folder, exist_ok, settings=chosen, model=model, store=store, data=source, by=by
    )
    if asked.is_finished(resume=resume):
        return asked.result(TenantsResult)
    resume = resume or asked.resumes("tenants")
    begun, note = require_tenants(name_of(model), store_path, source, folder, by, chosen, resume=resume)
    require_names(model)
    require_reachable(model)
    queries = read_tenants(source, by, columns=chosen.data.columns.given(), split=chosen.data.split)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.adiabatic.tenant_data import digest_of, divided
    from adiabat.store.vector_store import Store

    opened = Store.open(store_path)
    inputs = {"model": name_of(model), "store": store_path, "data": source, "by": by}
    inputs |= {"store_vectors": opened.manifest.sha256, "queries": digest_of(queries)}
    description = {"inputs": inputs, **chosen.model_dump()}
    if begun:
        require_same(Job(folder), description, rules=rules_of())
    with asked.carried_out(progress) as call:
        if note:
            call.watch.note(note)
        with claimed_for_jobs(folder, description.copy, begun=begun):
            files = divided(queries, opened, chosen, folder, source=source)
            for told in files.notes:
                call.watch.note(told)
            context = context_of(
                model,
                store,
                str(files.shared.path("train")),
                chosen.of_job(str(files.shared.path("validation")), is_shared=True),
            )
            result = _Towers(context, chosen, files, call).result(by)
            write_report(result, folder)
    return with_page(result, folder)


@dataclass
class _Towers:
    """The towers of all tenants while they are tuned, chosen and measured.

    Attributes:
        context: Model and store, with the queries of the shared tower.
        retained: Changes on the retention sets by tower, measured once for each.
        tuned_seconds: Time of all jobs so far, over their resumed parts.
    """

    context: "TuningContext"
    settings: TenantSettings
    files: "DividedQueries"
    call: Call
    retained: dict[str, dict[str, Change]] = field(default_factory=dict)
    tuned_seconds: float = 0.0

    def result(self, by: str) -> TenantsResult:
        """Tune all towers, choose one for each tenant, and measure the choices."""
        watch = self.call.watch
        record = self._tuned(
            self.files.shared, self.files.shared.folder, "all tenants", is_shared=True
        ).training
        assert record is not None, "a tuning job has a record"
        faults = self._tune_own(watch)
        began = time.monotonic()
        chosen = self._choices(faults)
        tenants = []
        for number, (files, choice) in enumerate(zip(self.files.tenants, chosen, strict=True), start=1):
            watch.progress("measuring tenants", number, len(chosen))
            tenants.append(self._measured(files, choice))
        from adiabat.models.device import device_name

        inputs = self.context.inputs
        served = []
        for files, tenant in zip(self.files.tenants, tenants, strict=True):
            served.append(f"{files.folder.name}={tenant.model}")
        return TenantsResult(
            title=f"Towers of {counted(len(tenants), 'tenant')} for {inputs['store']}",
            command=self.call.command,
            created=now(),
            seconds=self.tuned_seconds + time.monotonic() - began,
            seed=self.settings.run.seed,
            versions=versions(device_name(self.context.model.query.device)),
            settings=self.settings.recorded(),
            inputs={"target": dict(inputs)},
            notes=self.files.notes,
            model=inputs["model"],
            by=by,
            tenants=_with_family(tenants),
            shared=record.shown or 0.0,
            serve=_serving(inputs["store"], served),
        )

    def _tune_own(self, watch: Watch) -> dict[str, str]:
        """Tune the own tower of each tenant that has enough queries; returns why others have none."""
        why_not, began = {}, time.monotonic()
        fewest = self.settings.tenants.fewest
        enough = []
        for tenant in self.files.tenants:
            usable = tenant.counts["train"] + tenant.counts["validation"]
            if usable < fewest or not all(tenant.counts[part] for part in ("train", "validation")):
                why_not[tenant.name] = (
                    f"{counted(usable, 'query')} to tune and validate with, of {fewest:,} for an own tower"
                )
                watch.note(f"{tenant.name}: {why_not[tenant.name]}")
            else:
                enough.append(tenant)
        for number, tenant in enumerate(enough, start=1):
            title = f"tenant {number} of {len(enough)}, {tenant.name}"
            try:
                self._tuned(tenant, tenant.folder / OWN, title, is_shared=False)
            except DivergedError as fault:
                why_not[tenant.name] = str(fault)
                watch.note(f"{tenant.name}: {fault}")
            left = (time.monotonic() - began) / number * (len(enough) - number)
            watch.note(f"{number} of {counted(len(enough), 'own tower')} tuned, {duration(left)} left")
        return why_not

    def _tuned(self, queries: "TenantQueries", job: Path, title: str, *, is_shared: bool) -> Result:
        """The result of a job, which is made or resumed unless it is there."""
        if Job(job).is_done:
            result = read_result(Job(job).result, Result)
        else:
            context = self.context if is_shared else self.context.with_data(str(queries.path("train")))
            settings = self.settings.of_job(str(queries.path("validation")), is_shared=is_shared)
            watch = self.call.watch
            titled = watch.under(title, note=lambda told: watch.note(f"{title}: {told}"))
            part = replace(self.call, watch=titled)
            began = time.monotonic()
            result = tune_in(context, job, settings, resume=is_job(job), began=began, call=part)
        self.tuned_seconds += result.seconds
        return result

    def _choices(self, why_not: dict[str, str]) -> list["TowerChoice"]:
        """Choose a tower for each tenant."""
        from adiabat.adiabatic.tenant_choice import TowerChooser, judged_file, tuned_tower, write_average

        settings = self.settings.of_job(str(self.files.shared.path("validation")), is_shared=True)
        start = self.context.start_on_device(settings).query
        chooser = TowerChooser(
            start, tuned_tower(self.files.shared.folder, settings), self.context.retained(settings)
        )
        choices = []
        for number, tenant in enumerate(self.files.tenants, start=1):
            self.call.watch.progress("choosing towers", number, len(self.files.tenants))
            own, why = None, why_not.get(tenant.name, "")
            if not why:
                own = tuned_tower(tenant.folder / OWN, settings)
                why = "" if own is not None else "its own job kept the start"
            validation = None
            if tenant.counts["validation"]:
                validation = judged_file(self.context, tenant.path("validation"), settings)
            choice = chooser.choose(validation, own, why)
            average = tenant.folder / AVERAGE
            if choice.name == "average" and not Job(average).is_done:
                assert own is not None
                write_average(tenant.folder / OWN, self.files.shared.folder, average, chooser.average(own))
            choices.append(choice)
        return choices

    def _measured(self, files: "TenantQueries", choice: "TowerChoice") -> Tenant:
        """A tenant with its chosen tower, and the verdict on its test queries."""
        start, store = self.context.inputs["model"], self.context.inputs["store"]
        places = {
            "shared": self.files.shared.folder,
            "own": files.folder / OWN,
            "average": files.folder / AVERAGE,
        }
        tower = str(places.get(choice.name, start))
        target: Change | None = None
        retained: dict[str, Change] = {}
        if files.counts["test"] and choice.name != "start":
            known = self.retained.get(tower)
            result = evaluate(
                tower,
                store,
                str(files.path("test")),
                baseline=self.context.model,
                retain=retained_sets((), self.settings.retain) if known is None else (),
                out=files.folder / EVALUATION,
                settings=self._of_evaluation(),
                progress=self.call.watch,
            )
            own, *others = result.datasets
            self.retained.setdefault(tower, {each.name: each.main_change() for each in others})
            target, retained = own.main_change(), self.retained[tower]
        return Tenant(
            name=files.name,
            train=files.counts["train"],
            validation=files.counts["validation"],
            test=files.counts["test"],
            towers=choice.towers,
            chosen=choice.name,
            why=choice.why,
            model=tower,
            target=target,
            retained=retained,
        )

    def _of_evaluation(self) -> dict[str, Any]:
        """Settings of the evaluations, which rank the whole store as the choices did."""
        data = {"ids": self.settings.data.ids, "missing": self.settings.data.missing}
        return {
            "encoder": self.settings.encoder.model_dump(exclude_unset=True),
            "data": data,
            "measure": {"negatives": "store"},
            "run": {"device": self.settings.run.device, "seed": self.settings.run.seed},
        }


def _serving(store: str, towers: list[str]) -> str:
    """The call that serves towers, each as NAME=MODEL."""
    if typed_command() is None:
        return call_of("serve", written(store), towers=towers)
    return call_of("serve", written(store), *(option("tower", tower) for tower in towers))


def _with_family(tenants: Sequence[Tenant]) -> list[Tenant]:
    """Tenants with whether their change holds among all of them."""
    p_values = {}
    for number, tenant in enumerate(tenants):
        if tenant.target is not None and tenant.target.p is not None:
            p_values[number] = tenant.target.p
    holds = np.ones(len(tenants), dtype=np.bool_)
    holds[list(p_values)] = benjamini_hochberg(np.array(list(p_values.values())))
    return [replace(tenant, holds=bool(held)) for tenant, held in zip(tenants, holds, strict=True)]
