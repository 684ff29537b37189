"""`bcnn extract` and `bcnn train`."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NonFiniteTrainingError
from ..files import at_home
from ..finetune.config import FinetuneConfig, FinetuneSession
from ..finetune.recipes import RECIPES
from ..options import declared_by
from ..runs.config import CLASSIFIER, RunConfig, from_options
from .common import Json, is_typed, make_console, print_broken, print_json
from .common import device as check_device
from .options import given, with_options
from .progress import progress_bars

if TYPE_CHECKING:
    from ..descriptors.extract import Extracted
    from ..metrics import FineTuned
    from ..runs.finish import Trained

# What describing the images has to know.
EXTRACT = {
    name: option
    for name, option in declared_by(RunConfig).items()
    if option.panel != CLASSIFIER and name not in ("descriptors", "finetune")
}


@with_options(EXTRACT, config=True)
def extract(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The folder for the descriptors. One that was begun before is continued.")],
    **options: Any,
) -> None:
    """Describe every image of a dataset and keep the descriptors on disk.

    Interrupt it at any time; the same command continues where it stopped. With
    `torchrun --nproc-per-node 2 -m bcnn extract ...` processes share the work, on several machines as well if they see
    the same folder.
    """
    chosen = _config(given(context, options))
    from ..data.contract import TRAIN
    from ..data.spec import load_dataset
    from ..descriptors.team import join, leave
    from ..runs.networks import networks
    from ..runs.train import descriptors_held, extract_all, fit_all

    team = join()
    dataset = load_dataset(chosen.spec)
    with progress_bars(show=team.leads) as progress, ExitStack() as stack:
        models = networks(chosen, dataset)
        team.lead(lambda: stack.enter_context(descriptors_held(out, chosen)))
        fit_all(models, dataset.of(TRAIN), out, chosen.extraction, team=team, progress=progress)
        places, done = extract_all(chosen, dataset, models, out, team=team, progress=progress)
    console = make_console(show=team.leads)
    before = done.num_images - done.num_done
    console.print(f"{done.num_images} images, {before} of them described before.")
    print_broken(console, done.broken, done.num_images)
    console.print("Written: " + ", ".join(map(str, places.values())), markup=False, soft_wrap=True)
    leave()


@with_options(declared_by(RunConfig), declared_by(FinetuneSession), declared_by(FinetuneConfig), config=True)
def train(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="The run folder.", show_default="runs/<dataset>_<backbone>_<presets>")
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a classifier on a dataset, from the features of a network, and measure how good it is.

    Writes a run folder: config.yaml, metrics.json, predictions.csv, confusion.png, mistakes.png and the model, which
    `bcnn predict` and `bcnn evaluate` take. Interrupt it at any time; the same command continues. Several presets
    are compared in one table and one plot. Works under torchrun like `bcnn extract`.

    With --finetune the whole network is trained first, as in the paper; the run folder then holds checkpoints, logs and
    curves.png as well.
    """
    chosen = _config(_before_recipe(context, given(context, options)))
    place = out or Path("runs") / default_name(chosen)
    if chosen.boost is not None:
        runs, done, leads = _run_boosted(chosen, place)
    else:
        runs, done, leads = _run(chosen, place, resume=options["resume"])
    if as_json and leads:
        print_json([(result.folder, result.metrics) for result in runs])
    console = make_console(show=leads and not as_json)
    print_broken(console, done.broken, done.num_images)
    tested = [result for result in runs if result.metrics.test is not None]
    if len(tested) > 1:
        console.print(_comparison(tested, chosen.finetune is not None))
    for result in runs:
        console.print(_summary(result), markup=False, soft_wrap=True)
        if result.metrics.finetune is not None:
            console.print(f"  {result.metrics.finetune.memory}", markup=False, soft_wrap=True, style="dim")


def _run(chosen: RunConfig, place: Path, *, resume: bool) -> tuple[list[Trained], Extracted, bool]:
    """Do it; returns the results, a summary of the images, and whether this process prints them."""
    from ..descriptors.team import join, leave
    from ..finetune.engine import start
    from ..finetune.signals import Interrupted

    tuning = chosen.finetune
    if tuning is not None:
        fabric = start(devices=tuning.devices, nodes=tuning.nodes, precision=chosen.precision, device=chosen.device)
    team = join()
    try:
        with progress_bars(show=team.leads) as progress, team.together():
            if tuning is None:
                from ..runs.train import train

                return *train(chosen, place, team=team, progress=progress), team.leads
            from ..runs.finetune import finetune

            return *finetune(chosen, place, fabric, resume=resume, team=team, progress=progress), team.leads
    except Interrupted:
        if team.leads:
            typer.secho(f"bcnn: stopped and saved in {place}; the same command goes on from there.", err=True)
        raise
    except NonFiniteTrainingError:  # all processes know
        if not team.leads:
            raise SystemExit(2) from None
        raise
    finally:
        leave()


def _run_boosted(chosen: RunConfig, place: Path) -> tuple[list[Trained], Extracted, bool]:
    """Run with boosting; returns the same."""
    from ..finetune.engine import start
    from ..finetune.signals import Interrupted
    from ..runs.boost import boost

    fabric = None
    if chosen.finetune is not None:
        fabric = start(devices=1, precision=chosen.precision, device=chosen.device)
    try:
        with progress_bars() as progress:
            runs, done = boost(chosen, place, fabric, progress=progress)
    except Interrupted:
        typer.secho(f"bcnn: stopped and saved in {place}; the same command goes on from there.", err=True)
        raise
    return runs, done, True


def _comparison(runs: list[Trained], finetune: bool) -> Any:
    from ..report import comparison
    from ..report import finetune as before_after

    metrics = [run.metrics for run in runs]
    if finetune:
        return before_after.LAYOUT.terminal(before_after.records_of(metrics))
    return comparison.LAYOUT.terminal(comparison.records_of(metrics, [run.predictions for run in runs]))


def _before_recipe(context: typer.Context, chosen: dict[str, Any]) -> dict[str, Any]:
    """A recipe that is typed goes before the numbers of a YAML file, and what else is typed before the recipe."""
    if not is_typed(context, "recipe"):
        return chosen
    decided = RECIPES[chosen["recipe"]]
    return {name: value for name, value in chosen.items() if name not in decided or is_typed(context, name)}


def _config(chosen: dict[str, Any]) -> RunConfig:
    """The options that were given as a configuration of a run; bfloat16 is tried out if it is to be used."""
    rest = {name: value for name, value in chosen.items() if name != "resume"}
    config = from_options({**rest, "device": check_device(chosen.get("device"))})
    if config.precision == "bf16":
        from ..descriptors.bfloat16 import avoid_broken_amx

        avoid_broken_amx()
    return config


def default_name(config: RunConfig) -> str:
    """A folder's name that tells dataset, network and presets."""
    from ..data.spec import split_spec

    kind, path, _ = split_spec(config.spec)
    dataset = at_home(path).resolve().name if kind in ("folder", "csv") else kind
    parts = [config.backbone, "-".join(config.preset), config.pooling or "", config.front or ""]
    words = [re.sub(r"[^\w.-]+", "-", part).strip("-") for part in parts if part]
    return "_".join([dataset, *words])


def _summary(result: Trained) -> str:
    from ..data.contract import shown
    from ..report.tables import interval, percent

    test, classifier, tuned = result.metrics.test, result.metrics.classifier, result.metrics.finetune
    if test is not None:
        share = f"accuracy {percent(test.accuracy)} % ({interval(*test.interval95)})"
        text = f"{result.preset}: {share} on {test.num_test} test images"
    else:
        text = f"{result.preset}: no test images"
        if classifier.cv_accuracy is not None:
            text += f"; {100 * classifier.cv_accuracy:.1f} % in cross-validation"
    if tuned is not None:
        text += f", {_tuned(tuned)}"
    if not classifier.converged:
        text += "; the classifier has NOT converged, see metrics.json"
    if classifier.untrained:
        count, first = len(classifier.untrained), shown(classifier.untrained[0])
        text += f"; {count} classes had no image that could be read and are never predicted, such as {first}"
    return f"{text}. Written: {result.folder}"


def _tuned(tuned: FineTuned) -> str:
    """What fine-tuning did, in a few words; a choice on the test split is said aloud."""
    chosen = "THE TEST SPLIT" if tuned.selected_on == "test" else tuned.selected_on
    text = f"fine-tuned, epoch {tuned.best_epoch} of {tuned.epochs}, chosen on {chosen}"
    if tuned.before.accuracy is not None:
        text += f"; before {100 * tuned.before.accuracy:.1f} %"
    if tuned.num_skipped:
        text += f"; {tuned.num_skipped} STEPS SKIPPED, not finite: see nonfinite.csv"
    if tuned.num_gradient_exceptions:
        text += f"; {tuned.num_gradient_exceptions} matrices with infinite or NaN gradients"
    return text
