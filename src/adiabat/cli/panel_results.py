"""Results: compare, space. Data and help: data, settings, upgrade, demo."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import typer

import adiabat
from adiabat.api.call import say
from adiabat.cli.options import (
    AS_JSON,
    BASELINE,
    CONFIG,
    DEVICE,
    EXIST_OK,
    FUSE,
    SEED,
    SET,
    SPLIT,
    USUAL,
    Given,
    Option,
    answer,
    argument,
    number,
    option,
    required,
    setting,
    show,
    switch,
    verb,
    writing_output,
)
from adiabat.config.section import Section
from adiabat.core.errors import ConfigError


@verb(
    argument("A", "Baseline: saved scores of one model, or a TREC run.", Path, name="first"),
    argument("B", "Model to compare with A: saved scores, or a TREC run.", Path, name="second"),
    option("--qrels", "FILE", "Judgements for TREC runs.", Path),
    option(
        "--out",
        "DIR",
        "Directory for result.json, page and tables. Default: only the table is printed.",
        Path,
    ),
    CONFIG,
    SET,
    SEED,
    EXIST_OK,
    AS_JSON,
)
def compare(given: Given) -> None:
    """Compare two models query by query from their saved scores, without loading the models."""
    from adiabat.config.tasks import CompareSettings

    settings = given.settings(CompareSettings)

    result = adiabat.compare(
        given.first,
        given.second,
        qrels=given.qrels,
        out=given.out,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    # Notes on saved scores were printed when they were measured; those on TREC runs are new.
    for task in result.tasks if given.qrels else ():
        for sentence in task.notes:
            say(f"note: {sentence}")
    show(result, given, None if given.out is None else result.page)


@verb(
    argument(
        "PATH...", "Stores, jobs, results, folders of them, or settings files.", list[Path], name="paths"
    ),
    switch("--dry-run", "Say what would be converted, and write nothing."),
    Option(
        "backup",
        bool,
        "--no-backup",
        typer.Option("--backup/--no-backup", help="Keep the former files, as NAME.before-upgrade."),
        default=True,
    ),
    AS_JSON,
)
def upgrade(given: Given) -> None:
    """Convert files of earlier versions of adiabat in place; vectors stay as they are."""
    done = adiabat.upgrade(given.paths, dry_run=given.dry_run, backup=given.backup)
    answer(done.to_json() if given.json else done.summary())


@verb(
    argument("MODEL", "Model under test; its query tower encodes the queries."),
    argument("STORE", "Document vectors of its document tower.", Path),
    argument("QUERIES", "Queries with positives in the store."),
    required("--out", "DIR", "Directory for result.json, report.html, table.csv and table.md."),
    SPLIT,
    BASELINE,
    option(
        "--baseline-store",
        "STORE",
        "Document vectors of the baseline, if its document tower differs.",
        Path,
    ),
    switch("--map", "Draw a map of both towers (space.map=true; extra maps).", key="space.map"),
    *USUAL,
)
def space(given: Given) -> None:
    """Measure how query and document vectors are spread: separation, uniformity, alignment and anisotropy."""
    from adiabat.config.tasks import SpaceSettings

    settings = given.settings(SpaceSettings)

    result = adiabat.space(
        given.model,
        given.store,
        given.queries,
        baseline=given.baseline,
        baseline_store=given.baseline_store,
        out=given.out,
        settings=settings,
        exist_ok=given.exist_ok,
    )
    show(result, given, result.page)


@verb(
    argument("MODEL", "Model or finished job, one tower of which is exported."),
    required("--out", "DIR", "Directory of the export."),
    setting(
        "export.to",
        "--to",
        "FORMAT",
        "sentence-transformers, onnx, openvino or model2vec; peft or delta over the base model (export.to).",
    ),
    setting("export.tower", "--tower", None, "query or document (export.tower). Default: query."),
    setting(
        "export.precision",
        "--precision",
        None,
        "fp32, fp16 or int8 (export.precision). Default: fp32, of a delta fp16.",
    ),
    number(
        "export.min_cosine",
        "--min-cosine",
        "COSINE",
        "Least agreement with the model's vectors (export.min_cosine). Default: 0.9999, int8 0.95.",
    ),
    setting(
        "export.base",
        "--base",
        "MODEL",
        "Base model of peft and delta (export.base). Default: that of the job.",
    ),
    setting(
        "export.evaluations",
        "--evaluation",
        "DIR",
        "An evaluation for the model card (export.evaluations); repeatable.",
        list[str],
    ),
    CONFIG,
    SET,
    EXIST_OK,
    AS_JSON,
)
def export(given: Given) -> None:
    """Write one tower for other programs, and compare it with the model's own vectors."""
    from adiabat.config.exporting import ExportSettings

    exported = adiabat.export(
        given.model, given.out, settings=given.settings(ExportSettings), exist_ok=given.exist_ok
    )
    if given.json:
        answer(exported.to_json())
        return
    for line in exported.summary().split("\n"):
        say(line)
    answer(str(given.out))


@verb(
    argument("STORE", "Document vectors that all towers search.", Path),
    setting(
        "serve.towers",
        "--tower",
        "NAME=MODEL",
        "A tower under a name: a job, a directory or a delta (serve.towers); repeatable.",
        list[str],
    ),
    setting("serve.host", "--host", "ADDRESS", "Address to listen on (serve.host). Default: 127.0.0.1."),
    number("serve.port", "--port", "N", "Port, 0 for a free one (serve.port). Default: 8000."),
    FUSE,
    switch(
        "--approximate",
        "Search by an index of faiss, with its recall measured at the start (serve.approximate).",
        key="serve.approximate",
    ),
    setting(
        "serve.preferences", "--preferences", "FILE", "Keep thumbs on the page in FILE (serve.preferences)."
    ),
    CONFIG,
    SET,
    DEVICE,
)
def serve(given: Given) -> None:
    """Serve query towers of one store: OpenAI's embeddings, search, and a page that compares them."""
    from adiabat.config.serving import ServeSettings

    adiabat.serve(given.store, settings=given.settings(ServeSettings), on_listening=answer)


@verb(
    argument("ENDPOINT", "Address of OpenAI's interface, such as http://127.0.0.1:8000."),
    argument("MODEL", "Model or job that it should serve."),
    setting(
        "check.served", "--served", "NAME", "Name of the model there (check.served). Default: the only one."
    ),
    setting("check.tower", "--tower", None, "query or document (check.tower). Default: query."),
    setting("check.data", "--data", "DATA", "Queries to compare on (check.data). Default: those of the job."),
    setting(
        "check.store",
        "--store",
        "STORE",
        "Compare rankings of it (check.store). Default: that of the job.",
    ),
    number(
        "check.min_cosine", "--min-cosine", "COSINE", "Least agreement (check.min_cosine). Default: 0.999."
    ),
    CONFIG,
    SET,
    AS_JSON,
)
def check(given: Given) -> None:
    """Compare a running endpoint with a model; exit code 3 where they differ, with what explains it."""
    from adiabat.config.checking import CheckSettings

    found = adiabat.check(given.endpoint, given.model, settings=given.settings(CheckSettings))
    answer(found.to_json() if given.json else found.summary())
    if not found.agrees:
        raise typer.Exit(3)


@verb(
    argument("ENDPOINT", "Address of OpenAI's interface, such as http://127.0.0.1:8000."),
    required("--store", "STORE", "Document vectors that the endpoint's are for."),
    required("--out", "DIR", "Directory of the first reading and of readings.jsonl."),
    setting("watch.served", "--served", "NAME", "Its name there (watch.served). Default: the only one."),
    setting("watch.probes", "--probes", "FILE", "Probe texts (watch.probes). Default: those of adiabat."),
    number("watch.limit", "--limit", "LOSS", "Overlap loss that is an alarm (watch.limit). Default: 0.01."),
    setting("watch.every", "--every", "TIME", "Read on, such as every 10min (watch.every). Default: once."),
    CONFIG,
    SET,
)
def watch(given: Given) -> None:
    """Measure the drift of a running endpoint since its first reading; exit code 3 for an alarm."""
    from adiabat.config.checking import WatchSettings

    last = adiabat.watch(
        given.endpoint,
        given.store,
        given.out,
        settings=given.settings(WatchSettings),
        on_reading=lambda row: answer(json.dumps(row)),
    )
    if last["alarm"]:
        raise typer.Exit(3)


KINDS: Mapping[str, str] = {
    "embed": "shared:EmbedSettings",
    "advise": "shared:AdviseSettings",
    "tune": "tuning:TuneSettings",
    "safe-rate": "tuning:TuneSettings",
    "train": "dual_training:TrainSettings",
    "evaluate": "shared:EvaluateSettings",
    "suite": "tasks:SuiteSettings",
    "compare": "tasks:CompareSettings",
    "search": "shared:SearchSettings",
    "inspect": "dataset_settings:InspectSettings",
    "mine": "dataset_settings:MineSettings",
    "label": "dataset_settings:LabelSettings",
    "space": "tasks:SpaceSettings",
    "sweep tune": "sweeps:TuneSweepSettings",
    "sweep train": "sweeps:TrainSweepSettings",
    "scaling": "budgets:ScalingSettings",
    "plan": "budgets:PlanSettings",
    "distill static": "distillation:DistillStaticSettings",
    "distill fit": "distillation:FitSettings",
    "distill multilingual": "distillation:MultilingualSettings",
    "distill ablate": "distillation:AblateSettings",
    "export": "exporting:ExportSettings",
    "serve": "serving:ServeSettings",
    "check": "checking:CheckSettings",
    "watch": "checking:WatchSettings",
    "tune-tenants": "tenant_towers:TenantSettings",
    "data arxiv-negatives": "dataset_settings:ArxivSettings",
    "data msmarco": "dataset_settings:MsmarcoSettings",
    "data squad": "dataset_settings:SquadSettings",
    "data hotpotqa": "dataset_settings:HotpotqaSettings",
    "data xnli": "dataset_settings:XnliSettings",
}
"""Verb to the module and class of its settings; `suite` is what ``adiabat evaluate --suite`` reads."""


def kind_of(verb: str) -> type[Section]:
    """The class of a verb's settings."""
    module, _, kind = KINDS[verb].partition(":")
    section: type[Section] = getattr(import_module(f"adiabat.config.{module}"), kind)
    return section


@verb(
    argument(
        "VERB",
        "A verb, such as tune or `distill fit`; or suite, for the file of --suite.",
        list[str],
    ),
)
def settings(given: Given) -> None:
    """Print all settings of a verb as a TOML file for --config: keys, defaults, allowed values and
    meaning.
    """
    # Verbs of two words, such as `distill fit`, come as two arguments.
    name = " ".join(given.verb)
    if name not in KINDS:
        raise ConfigError(f"VERB must be one of {', '.join(KINDS)}, got {name}; choose one")
    from adiabat.config.settings_template import template

    with writing_output():
        print(template(kind_of(name)), end="")


@verb(
    argument("KIND", "msmarco, squad, hotpotqa, xnli or arxiv-negatives."),
    argument("IN", "The publisher's file or folder.", Path, name="source"),
    required("--out", "DIR", "A new directory."),
    CONFIG,
    SET,
    SEED,
    EXIST_OK,
    AS_JSON,
)
def data(given: Given) -> None:
    """Make a data set of the literature from its official files."""
    from adiabat.api.data_verbs import maker_of

    # Each kind of data set has settings of its own.
    settings = given.settings(maker_of(given.kind)[0])
    summary = adiabat.make(given.kind, given.source, given.out, settings=settings, exist_ok=given.exist_ok)
    for sentence in summary.notes:
        say(sentence)
    for name, rows in summary.examples.items():
        say(f"{name}: {rows:,}")
    if summary.documents:
        say(f"documents: {summary.documents:,}")
    answer({**asdict(summary), "folder": str(summary.folder)} if given.json else str(summary.folder))


@verb(
    Option(
        "out",
        Path,
        "--out",
        typer.Option("--out", metavar="DIR", help="Directory for the demo's files."),
        default=Path("runs/demo"),
    ),
    AS_JSON,
)
def demo(given: Given) -> None:
    """Tune the embedded model on embedded papers, and show that the target got better and the rest did not
    get worse.
    """
    from adiabat.api.tune_verb import run_demo

    result = run_demo(given.out)
    show(result, given, given.out / "report.html")
