"""`adiabat.train` and `adiabat.estimate`: train both towers, and estimate the cost of a run."""

from typing import TYPE_CHECKING, Any

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    optional_name,
    settings_of,
    with_real_out,
    with_section,
)
from adiabat.api.call import Progress, called
from adiabat.api.repeated import Asked
from adiabat.api.with_page import with_page
from adiabat.config.dual_training import TrainSettings
from adiabat.core.wording import call_began
from adiabat.dual_encoder.train_checks import require_estimable, require_models, require_ready
from adiabat.results.evaluation_result import Result

if TYPE_CHECKING:
    from adiabat.dual_encoder.train_record import Estimate


def train(
    model: PathLike | None = None,
    data: Data | None = None,
    out: PathLike | None = None,
    *,
    resume: bool = False,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Result | None:
    """Train both towers of a dual encoder on pairs of texts.

    Under ``torchrun`` or ``accelerate launch`` every process takes a share of each batch, and the main
    process writes.

    Args:
        model: Model that training starts from: any backbone; ``job.model`` of the settings.
        data: Queries with positives and optionally negatives: a file, a BEIR folder, or rows such as
            ``{"query": ..., "positive": ...}``; ``job.data`` of the settings.
        out: Directory of the job, which becomes the trained model; ``job.out`` of the settings.
        resume: Continue an interrupted job.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses a job, unless
            `resume`.
        settings: `TrainSettings`, a TOML file or nested dicts; ``adiabat settings train`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``batch_size=64``, ``steps=1000``, ``learning_rate=2e-5``,
            ``towers={"kind": "asymmetric"}``. Of the optional tables ``guide`` and ``stream``, None keeps
            what `settings` say, False switches the table off, and a dict switches it on, as do True for
            ``stream`` and the name of a model for ``guide``.

    Returns:
        The record of the run, which other functions take as the trained model; None in a process other than
        the main one.

    Raises:
        AdiabatError: If model, data, settings or directory are unusable, or the loss diverges.

    Example:
        >>> pairs = [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(16)]
        >>> job = adiabat.train("demo", pairs, out="job", batch_size=4, steps=2)
        >>> job.training.steps
        2
    """
    began = call_began()
    chosen = with_real_out(_settings(model, data, out, settings, options, "train"), "job")
    asked = Asked.of("train", chosen.job.out, exist_ok, settings=chosen)
    if asked.is_finished(resume=resume):
        return asked.result(Result)
    resume = resume or asked.resumes("job")
    check_train(chosen, resume=resume)
    asked.take_digests()
    # Imported after the checks: torch takes seconds to load.
    from adiabat.dual_encoder.train import train as run_training
    from adiabat.models.model_names import load_with

    with called("train", progress) as call:
        result = run_training(
            load_with, chosen, resume=resume, command=call.command, watch=call.watch, started=began
        )
    if result is None:
        return None
    asked.remember()
    return with_page(result, asked.out)


def estimate(
    model: PathLike | None = None,
    data: Data | None = None,
    *,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> "Estimate":
    """Estimate a training run: parameters, tokens, FLOPs, and memory and time measured on three steps;
    nothing is written.

    Args:
        model: As for `train`.
        data: As for `train`.
        settings: As for `train`.
        progress: As for `train`.
        **options: As for `train`.

    Returns:
        The estimate.

    Example:
        >>> pairs = [{"query": f"question {number}", "positive": f"answer {number}"} for number in range(16)]
        >>> adiabat.estimate("demo", pairs, batch_size=4, steps=2).steps
        2
    """
    began = call_began()
    chosen = _settings(model, data, None, settings, options, "estimate")
    check_train(chosen, dry_run=True)
    from adiabat.dual_encoder.train import estimate as estimate_run
    from adiabat.models.model_names import load_with

    with called("estimate", progress) as call:
        return estimate_run(load_with, chosen, watch=call.watch, started=began)


def check_train(settings: TrainSettings, *, resume: bool = False, dry_run: bool = False) -> None:
    """Refuse a run that cannot start or resume, or whose cost cannot be estimated."""
    if dry_run:
        require_estimable(settings)
    else:
        require_ready(settings, resume=resume)
    require_models(settings)


def _settings(
    model: Any, data: Any, out: Any, settings: SettingsLike, options: dict[str, Any], function: str
) -> TrainSettings:
    options = with_section(
        options,
        "job",
        model=optional_name(model, "model"),
        data=None if data is None else data_of(data, "data"),
        out=optional_name(out, "out"),
    )
    return settings_of(TrainSettings, settings, options, section="train", function=function)
