"""`bcnn extract` and `bcnn train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import options as o
from . import tuning as t
from .common import device as check_device
from .common import names
from .progress import progress_bars
from .tuning import DEFAULT


def extract(
    spec: o.Spec,
    out: Annotated[Path, typer.Option(help="Folder for the features; one begun before is gone on with.")],
    preset: o.Preset = "improved_bcnn",
    backbone: o.Backbone = "vgg16",
    weights: o.WeightsName = "default",
    layer: o.Layer = None,
    size: o.Size = None,
    eps: o.Eps = None,
    eps_scale: o.EpsScale = None,
    normalize: o.Normalize = None,
    forward: o.Forward = None,
    backward: o.Backward = None,
    num_iters: o.NumIters = None,
    proj_dim: o.ProjDim = None,
    flips: o.Flips = True,
    precision: o.Precision = "float32",
    seed: o.Seed = 0,
    batch: o.Batch = 4,
    workers: o.Workers = 2,
    strict: o.Strict = False,
    device: o.Device = None,
    config: o.Config = None,
) -> None:
    """Describe every image of a dataset and keep the features on disk.

    Interrupt it at any time and give the same command again: it goes on where it was. With
    `torchrun --nproc-per-node 2 -m bcnn extract ...` processes share the work, on several machines as well if they see
    the same folder.
    """
    chosen = _config(locals())
    _avoid_broken_bfloat16(precision)
    from ..data.spec import load_dataset
    from ..features.folder import describe_broken
    from ..features.team import join, leave
    from ..runs import config as configs
    from ..runs.train import describe

    team = join()
    dataset = load_dataset(spec)
    with progress_bars(show=team.leads) as progress:
        models = configs.networks(chosen, dataset, report=o.download_report())
        places, done = describe(chosen, dataset, models, out, team=team, tick=progress)
    console = o.quiet_console(team.leads)
    before = done.num_images - done.num_done
    console.print(f"{done.num_images} images, {before} of them described before.")
    if done.broken:
        console.print(describe_broken(done.broken, done.num_images), style="yellow", markup=False, soft_wrap=True)
    console.print("Written: " + ", ".join(map(str, places.values())), markup=False, soft_wrap=True)
    leave()


def train(
    context: typer.Context,
    spec: o.Spec,
    out: Annotated[
        Path | None, typer.Option(help="The run folder.", show_default="runs/<dataset>_<backbone>_<presets>")
    ] = None,
    preset: o.Preset = "improved_bcnn",
    backbone: o.Backbone = "vgg16",
    weights: o.WeightsName = "default",
    layer: o.Layer = None,
    size: o.Size = None,
    eps: o.Eps = None,
    eps_scale: o.EpsScale = None,
    normalize: o.Normalize = None,
    forward: o.Forward = None,
    backward: o.Backward = None,
    num_iters: o.NumIters = None,
    proj_dim: o.ProjDim = None,
    flips: o.Flips = True,
    precision: o.Precision = "float32",
    classifier: Annotated[str, typer.Option(help="Of svm, svm_squared, logistic.")] = "svm",
    rescale: Annotated[
        str,
        typer.Option(
            help="Bring the classifiers of the classes to one scale: median as the authors do, or none.",
            show_default="median for SVMs",
        ),
    ] = "auto",
    c: Annotated[float, typer.Option("--C", help="Weight of the errors against the margin.")] = 1.0,
    seed: o.Seed = 0,
    batch: o.Batch = 4,
    workers: o.Workers = 2,
    strict: o.Strict = False,
    device: o.Device = None,
    features: Annotated[
        Path | None, typer.Option(help="Folder of the features, to share them.", show_default="in the run folder")
    ] = None,
    config: o.Config = None,
    finetune: t.Finetune = False,
    resume: t.Resume = True,
    recipe: t.Recipe = None,
    epochs: t.Epochs = DEFAULT.epochs,
    lr: t.Lr = DEFAULT.lr,
    momentum: t.Momentum = DEFAULT.momentum,
    weight_decay: t.WeightDecay = DEFAULT.weight_decay,
    batch_size: t.BatchSize = DEFAULT.batch_size,
    schedule: t.Schedule = DEFAULT.schedule,
    warmup_epochs: t.WarmupEpochs = DEFAULT.warmup_epochs,
    step_epochs: t.StepEpochs = DEFAULT.step_epochs,
    step_factor: t.StepFactor = DEFAULT.step_factor,
    clip: t.Clip = None,
    lr_scale: t.LrScale = None,
    decay_scale: t.DecayScale = None,
    freeze_until: t.FreezeUntil = None,
    val_share: t.ValShare = DEFAULT.val_share,
    select_on: t.SelectOn = DEFAULT.select_on,
    select_by: t.SelectBy = DEFAULT.select_by,
    init_c: t.InitC = DEFAULT.init_c,
    on_nonfinite: t.OnNonfinite = DEFAULT.on_nonfinite,
    checkpoint_minutes: t.CheckpointMinutes = DEFAULT.checkpoint_minutes,
    checkpoint_activations: t.CheckpointActivations = False,
    compile: t.Compile = False,
    cache_frozen: t.CacheFrozen = True,
    memory_gb: t.MemoryGb = DEFAULT.memory_gb,
    devices: t.Devices = 1,
    nodes: t.Nodes = 1,
) -> None:
    """Make a classifier from a dataset: features of a network, a linear classifier, and how good it is.

    Writes a run folder: config.yaml, metrics.json, predictions.csv, confusion.png, mistakes.png and the model, which
    `bcnn predict` and `bcnn evaluate` take. Interrupt it at any time and give the same command again. Several presets
    are compared in one table and one plot. Works under torchrun like `bcnn extract`.

    With --finetune the whole network is trained first, as in the paper; the run folder then holds checkpoints, logs and
    curves.png as well.
    """
    values = {name: value for name, value in locals().items() if name not in ("context", "resume")}
    values["C"] = values.pop("c")
    values |= {"lr_scale": tuple(lr_scale or ()), "decay_scale": tuple(decay_scale or ())}
    chosen = _config(t.as_given(values, context))
    _avoid_broken_bfloat16(precision)
    place = out or Path("runs") / default_name(chosen)
    runs, done, leads = t.run(chosen, place, resume=resume) if finetune else _run_frozen(chosen, place)
    console = o.quiet_console(leads)
    if done.broken:
        from ..features.folder import describe_broken

        console.print(describe_broken(done.broken, done.num_images), style="yellow", markup=False, soft_wrap=True)
    tested = [r for r in runs if r.metrics["accuracy"] is not None]
    if len(tested) > 1:
        console.print(_comparison(tested, finetune))
    for result in runs:
        console.print(_summary(result), markup=False, soft_wrap=True)
        if "finetune" in result.metrics:
            console.print(f"  {result.metrics['finetune']['memory']}", markup=False, soft_wrap=True, style="dim")


def _run_frozen(chosen: Any, place: Path) -> tuple[Any, Any, bool]:
    from ..features.team import join, leave
    from ..runs.train import train as run

    team = join()
    with progress_bars(show=team.leads) as progress:
        runs, done = run(chosen, place, team=team, tick=progress, report=o.download_report())
    leave()
    return runs, done, team.leads


def _comparison(runs: Any, finetune: bool) -> Any:
    from ..report import comparison
    from ..report import finetune as before_after

    metrics = [run.metrics for run in runs]
    if finetune:
        return before_after.LAYOUT.terminal(before_after.records_of(metrics))
    return comparison.LAYOUT.terminal(comparison.records_of(metrics, [run.predictions for run in runs]))


def _config(values: dict[str, Any]) -> Any:
    """The options of a command as a configuration of a run."""
    from ..features.team import default_device
    from ..runs.config import from_options

    chosen = {name: value for name, value in values.items() if name not in ("out", "config")}
    chosen["preset"] = names("--preset", chosen["preset"])
    chosen["normalize"] = tuple(chosen["normalize"]) if chosen["normalize"] else None
    chosen["weights"] = None if chosen["weights"] == "none" else chosen["weights"]
    chosen["device"] = check_device(chosen["device"] or default_device())
    if chosen.get("features") is not None:
        chosen["features"] = str(chosen["features"])
    return from_options(chosen)


def default_name(config: Any) -> str:
    """A folder's name that tells dataset, network and presets."""
    from ..data.spec import split_spec

    kind, path, _ = split_spec(config.spec)
    dataset = Path(path).expanduser().resolve().name if kind in ("folder", "csv") else kind
    return "_".join([dataset, config.backbone.replace("/", "-"), "-".join(config.preset)])


def _avoid_broken_bfloat16(precision: str) -> None:
    if precision == "bf16":
        from ..features.bfloat16 import avoid_broken_amx

        avoid_broken_amx()


def _summary(result: Any) -> str:
    from ..data.contract import shown
    from ..report.tables import interval, percent

    metrics = result.metrics
    if metrics["accuracy"] is None:
        text = f"{result.preset}: no test images"
        if metrics["classifier"]["cv_accuracy"] is not None:
            text += f"; {100 * metrics['classifier']['cv_accuracy']:.1f} % in cross-validation"
    else:
        text = (
            f"{result.preset}: accuracy {percent(metrics['accuracy'])} % ({interval(*metrics['interval95'])}) "
            f"on {metrics['num_test']} test images"
        )
    if "finetune" in metrics:
        text += f", {_tuned(metrics['finetune'])}"
    if not metrics["classifier"]["converged"]:
        text += "; the classifier has NOT converged, see metrics.json"
    untrained = metrics["classifier"]["untrained"]
    if untrained:
        text += f"; {len(untrained)} classes had no image that could be read and are never predicted, such as "
        text += shown(untrained[0])
    return f"{text}. Written: {result.folder}"


def _tuned(tuned: dict[str, Any]) -> str:
    """What fine-tuning did, in a few words; a choice on the test split is said aloud."""
    chosen = "THE TEST SPLIT" if tuned["selected_on"] == "test" else tuned["selected_on"]
    text = f"fine-tuned, epoch {tuned['best_epoch']} of {tuned['epochs']}, chosen on {chosen}"
    if tuned["before"]["accuracy"] is not None:
        text += f"; before {100 * tuned['before']['accuracy']:.1f} %"
    if tuned["num_skipped"]:
        text += f"; {tuned['num_skipped']} STEPS SKIPPED, not finite: see nonfinite.csv"
    if tuned["num_gradient_exceptions"]:
        text += f"; {tuned['num_gradient_exceptions']} matrices with infinite or NaN gradients"
    return text
