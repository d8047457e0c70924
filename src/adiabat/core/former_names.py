"""Former module names: scripts written before the rooms were renamed can import them until 0.1.0 is released."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_TABLE = """
api: ablating=api.ablate_verb distilling=distillation.static_jobs loading=models.model_names
compare: compare=experiments.comparison measuring=experiments.comparison_runs outcome=experiments.comparison_outcome
compare: ranking=stats.variant_ranking rows=experiments.comparison_rows runs=experiments.comparison_runs spec=experiments.comparison_spec
compare: speed=experiments.comparison_runs
config: compare=config.comparison_settings distil=config.distillation faults=config.validation inspect=config.dataset_settings
config: makers=config.dataset_settings mine=config.dataset_settings named=config.tasks plan=config.budgets reading=config.reader
config: space=config.tasks study=config.sweeps suite=config.tasks sweep=config.budgets teach=config.distillation
config: template=config.settings_template train=config.dual_training train_data=config.dual_training_data tune=config.tuning
config: units=config.section
-: console=cli.console errors=core.errors excerpts=core.text files=core.files journal=core.json_lines locks=core.files
-: provenance=core.provenance seals=core.checksums watch=core.progress
contrastive: bank=dual_encoder.text_cache batches=dual_encoder.batches beforehand=dual_encoder.train_checks
contrastive: building=dual_encoder.tower_setup criterion=dual_encoder.criterion data=dual_encoder.pair_data estimate=dual_encoder.estimate
contrastive: frozen=dual_encoder.text_cache kept=dual_encoder.dataset_cache length=dual_encoder.train_checks
contrastive: objective=dual_encoder.contrastive_objective order=dual_encoder.batch_plan ranks=dual_encoder.answer_ranks
contrastive: record=dual_encoder.train_record resuming=dual_encoder.train_checks streams=dual_encoder.stream timing=dual_encoder.timing
contrastive: trained=dual_encoder.pair_data training=dual_encoder.train windows=dual_encoder.stream_shards
data: arrangement=data.batch_arrangement batching=data.batch_sampler column_names=data.table_headers headers=data.table_headers
data: hub=data.table_formats languages=data.language_grids listed=data.listed_documents numbering=data.text_hashes numerals=core.text
data: packaged=core.provenance pairs=data.pair_sets parquet=data.table_formats question_grid=data.language_grids ragged=core.ragged
data: remarks=data.skipped_rows selection=data.row_filters splitting=data.example_stream streaming=data.example_stream
data: tables=data.table_rows trained=data.trained_texts
demo: data=datasets.bundled job=api.demo_run model=models.model_names
distil: counting=distillation.vocabulary layer=distillation.student lessons=distillation.student_data
distil: passing=distillation.token_embeddings reduction=distillation.token_embeddings saving=distillation.static_model
distil: static=distillation.static_model targets=distillation.teacher_targets teaching=distillation.student
distil: vocabulary=distillation.vocabulary weights=distillation.token_weights words=distillation.vocabulary
drift: noise=adiabatic.drift probes=adiabatic.probes reading=adiabatic.probe_readings
inspection: digests=data.text_hashes findings=profiling.profile_findings groups=profiling.pair_counters inspect=profiling.profile
inspection: kinds=profiling.counters languages=profiling.text_languages lengths=profiling.text_lengths pairs=profiling.pair_counters
inspection: reading=profiling.row_reader records=profiling.profile_record sampling=profiling.text_lengths shares=profiling.text_lengths
inspection: table=profiling.profile_view tally=profiling.counters tokens=profiling.text_lengths
jobs: claims=runs.output_dir descriptions=runs.run_config directory=runs.output_dir engines=runs.executors finish=runs.finish
jobs: job=runs.run_dir parquet_rows=runs.row_files record=training.run_record rows=runs.row_files trained=models.trained_file
makers: arxiv=datasets.arxiv dropping=datasets.writer hotpotqa=datasets.hotpotqa msmarco=datasets.msmarco msmarco_files=datasets.msmarco
makers: neighbours=datasets.neighbours seen=datasets.writer sentences=datasets.arxiv squad=datasets.squad streams=datasets.json_streams
makers: writing=datasets.writer xnli=datasets.xnli
measure: cells=stats.language_grid_stats comparison=results.comparison_result counterparts=stats.paired_samples
measure: distil_results=results.distillation_result drift=adiabatic.drift grid=evaluation.language_grid_measures
measure: layers=training.run_record metrics=stats.ranking_measures paired=stats.paired places=stats.rank_positions
measure: pnd=stats.rank_positions question_grid=evaluation.language_grid_tasks resampling=stats.resampling
measure: results=results.evaluation_result retrieval_grid=evaluation.retrieval_grid runs=stats.run_effects
measure: safe_rate_results=results.rate_search_result safety=results.drift_judgement samples=stats.samples
measure: separation=evaluation.space_maps significance=stats.significance space=evaluation.space_geometry space_maps=evaluation.space_maps
measure: space_numbers=evaluation.space_numbers space_results=results.space_result statistics=stats.statistics
measure: study_results=results.sweep_result suite_results=results.suite_result sweep_results=results.scaling_result
mining: choice=mining.miner corpus=mining.mining_corpus near=mining.filters output=mining.mined_file questions=mining.mining_queries
mining: tally=mining.mining_counts
model: adapters=models.adapters backbone=models.backbone batches=models.tokens building=models.towers bulk=models.bulk card=models.saving
model: cutting=models.long_texts device=models.device device_names=core.device_names directory=models.loading dropout=models.packing
model: encoder=models.encoder encoder_settings=models.embedding_head fingerprint=models.fingerprint freezing=models.freezing
model: layout=models.st_files memory=models.device modules=models.st_modules packing=models.packing pooling=models.embedding_head
model: precision=models.device probe=models.backbone projection=models.embedding_head projection_files=models.saving saving=models.saving
model: similarity=models.similarity_function static=models.static static_files=models.static_files tokenizer=models.tokenizer
model: tokens=models.token_cache towers=models.towers transformer_settings=models.st_modules vocabulary=models.token_rows
model: wordless=models.unknown_tokens workers=models.threads
plan: choosing=scaling_laws.selection downstream=scaling_laws.selection fitting=scaling_laws.fitting flops=scaling_laws.flops
plan: frontier=scaling_laws.frontier intervals=scaling_laws.law_intervals laws=scaling_laws.laws narrowing=scaling_laws.recommendation
plan: published=experiments.plan_prior recipe=scaling_laws.recommendation runs=scaling_laws.laws
report.comparison: page=report.comparison_page plots=report.comparison_plots table=report.comparison_table
report.comparison: wording=report.comparison_wording
report: figures=report.suite_values files=results.record headline=report.evaluation_headline heat=report.heat_cells
report: page=report.evaluation_page plots=report.evaluation_plots rows=report.interval_rows spreadsheet=report.csv_tables
report: table=report.evaluation_table templates=report.page_templates
report.safe_rate: files=report.rate_search_files labels=report.rate_search_labels page=report.rate_search_page
report.safe_rate: plots=report.rate_search_plots table=report.rate_search_table wording=report.rate_search_wording
report.space: page=report.space_page plots=report.space_plots table=report.space_table wording=report.space_wording
report.study: captions=report.sweep_captions curves=report.sweep_curves exports=report.sweep_exports files=report.sweep_files
report.study: layers=report.sweep_layers overview=report.sweep_cases page=report.sweep_page plots=report.sweep_plots
report.study: rows=report.sweep_columns safety=report.sweep_drift table=report.sweep_table trade=report.sweep_gain_tradeoff
report.study: values=report.sweep_values wording=report.sweep_wording
report.suite: exports=report.suite_exports files=report.suite_files grids=report.suite_grids headline=report.suite_headline
report.suite: overview=report.suite_analysis page=report.suite_page plots=report.suite_plots table=report.suite_table
report.suite: wording=report.suite_wording
report.sweep: curves=report.scaling_curves files=report.scaling_files page=report.scaling_page plots=report.scaling_plots
report.sweep: table=report.scaling_table wording=report.scaling_wording
store: corpus=store.corpus_files embeddings=store.vector_store ids=store.id_index kept=store.embedding_cache lexical=store.bm25
store: texts=store.equal_texts wordless=store.known_documents words=store.analysers
study: bench=experiments.evaluator both=experiments.dual_variants rows=experiments.sweep_rows spec=experiments.grid
study: study=experiments.sweep worker=experiments.sweep_trials
suite: corpora=evaluation.measured_models evaluation=evaluation.evaluate kept=evaluation.score_files outcome=evaluation.suite_findings
suite: prepared=evaluation.task_kinds running=evaluation.suite runs=evaluation.compare subjects=evaluation.measured_models
sweep: analysis=experiments.scaling_analysis options=experiments.plan_constraints outcome=experiments.scaling_rows
sweep: planning=experiments.plan prior=experiments.plan_prior reasons=experiments.plan_reasons rows=experiments.scaling_rows
sweep: spec=experiments.scaling_variants sweep=experiments.scaling worker=experiments.scaling_trials
tasks: bitext=evaluation.labels data=evaluation.retrieval_data labels=evaluation.labels languages=evaluation.language_grid_tasks
tasks: mteb=evaluation.mteb_task mteb_index=evaluation.mteb_encoder mteb_model=evaluation.mteb_encoder mteb_units=evaluation.mteb_units
tasks: own_documents=evaluation.retrieval_data rankers=evaluation.ranking ranking=evaluation.ranking retrieval=evaluation.retrieval
tasks: similarity=evaluation.similarity space=evaluation.space_analysis systems=evaluation.systems texts=store.text_vectors
tasks: trained=evaluation.trained_queries
train: blocks=training.blocks checkpoint=training.checkpoint chunking=training.gradient_cache chunks=training.gradient_cache
train: copies=training.gradient_cache counts=training.flop_count distributed=training.distributed inputs=store.input_checks
train: interrupt=training.limits limits=training.limits log=runs.run_log loop=training.loop losses=losses.in_batch
train: objective=training.objective operations=training.flop_count optimizers=training.optimizers pairs=losses.embedded_pairs
train: partition=losses.log_denominator passes=training.passes randomness=training.blocks schedules=training.schedules
train: temperature=losses.log_denominator together=training.distributed
tune: adiabatic=adiabatic.tune beforehand=adiabatic.tune_checks building=adiabatic.tune_setup ground=adiabatic.tuning_context
tune: guard=adiabatic.drift_guard ladder=experiments.rate_search negatives=adiabatic.negatives objective=adiabatic.stored_loss
tune: remedies=adiabatic.regularization resuming=adiabatic.tune_checks rung=experiments.rate_search splits=adiabatic.tune_data
tune: store_softmax=adiabatic.stored_loss
"""
"""Former room, then former name and module of each; ``-`` stands for no room."""


def _moved() -> dict[str, str]:
    """Former to present dotted names."""
    moved = {}
    for line in _TABLE.split("\n"):
        room, _, pairs = line.partition(":")
        for pair in pairs.split():
            name, _, module = pair.partition("=")
            moved[".".join(["adiabat", *([] if room == "-" else room.split(".")), name])] = f"adiabat.{module}"
    return moved


class _Former(Loader):
    """Loads a module that looks its names up in the present one; a former room holds nothing itself."""

    def __init__(self, present: str | None) -> None:
        self.present = present

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Let it find names in the present module."""
        if self.present is not None:
            vars(module)["__getattr__"] = import_module(self.present).__getattribute__


class FormerNames(MetaPathFinder):
    """Finds what no other finder knows: it is the last that is asked."""

    def __init__(self) -> None:
        """Read the table when the first name is asked for."""
        self._moved: dict[str, str] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a former module or room of this package."""
        if not fullname.startswith("adiabat."):
            return None
        self._moved = self._moved or _moved()
        if fullname in self._moved:
            return ModuleSpec(fullname, _Former(self._moved[fullname]))
        if any(name.startswith(f"{fullname}.") for name in self._moved):
            return ModuleSpec(fullname, _Former(None), is_package=True)
        return None


def install() -> None:
    """Resolve former module names when an import fails."""
    sys.meta_path.append(FormerNames())
