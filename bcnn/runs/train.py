"""Extraction, classifier, evaluation: from a dataset to a run folder.

Paper: Sec. 3.2, "Training and evaluation", without fine-tuning: one-vs-rest linear SVMs with C = 1 on frozen features,
predictions averaged over an image and its flipped copy. Training takes both views as well.

A run folder holds config.yaml, metrics.json, predictions.csv, model.safetensors, dual.safetensors, confusion.png,
mistakes.png and the descriptors in descriptors/; with several presets, one such folder each and their comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..data.contract import TEST, TRAIN, Dataset, Sample, shown
from ..data.spec import load_dataset
from ..descriptors.extract import Extracted, ExtractOptions, extract
from ..descriptors.fitting import fit_or_read
from ..descriptors.folder import Descriptors, check_free, digest_of, listed
from ..descriptors.team import Team
from ..files import read_text
from ..metrics import METRICS, find_runs
from ..models.bcnn import BCNN
from ..progress import Progress, silent, within
from ..report import comparison
from ..scorers import SCORERS
from . import config as configs
from .config import RunConfig
from .finish import Trained, finish
from .networks import networks
from .place import held, locked

MAY_HOLD = ("descriptors",)  # what may be in a run folder before the run: images that were described by `bcnn extract`


def train(
    config: RunConfig,
    out: Path,
    *,
    team: Team | None = None,
    progress: Progress = silent,
) -> tuple[list[Trained], Extracted]:
    """Describe, classify, evaluate, and write it all down; only the leader of a team does more than describe.

    Args:
        config: what to do.
        out: the run folder; one of another configuration is refused.
        team: the processes that share the work.
        progress: hears of every stage.
    """
    team = team or Team()
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    check_scorer(config)
    models = networks(config, dataset)
    with ExitStack() as stack:
        team.lead(lambda: stack.enter_context(held(out, "train", may_hold=MAY_HOLD)))
        team.lead(lambda: claim(config, dataset, out))
        root = Path(config.descriptors) if config.descriptors else out / "descriptors"
        fit_all(models, dataset.of(TRAIN), root, config.extraction, team=team, progress=progress)
        descriptors, done = extract_all(config, dataset, models, root, team=team, progress=progress)
        check_readable(dataset.of(TRAIN), done.broken, "train: expected training")
        if not team.leads:
            return [], done
        runs = []
        for preset, folder in configs.folders(out, config.preset).items():
            runs.append(
                finish(preset, folder, config, dataset, models[preset], Descriptors(descriptors[preset]), progress)
            )
        if len(runs) > 1:
            comparison.write([run.metrics for run in runs], [run.predictions for run in runs], out)
        return runs, done


@contextmanager
def descriptors_held(root: Path, config: RunConfig) -> Iterator[None]:
    """A folder for descriptors alone, made if need be, that no other command works in until the block ends."""
    for place in configs.folders(root, config.preset).values():
        check_free(place)
    root.mkdir(parents=True, exist_ok=True)
    with locked(root, "extract"):
        yield


def extract_all(
    config: RunConfig,
    dataset: Dataset,
    models: Mapping[str, BCNN],
    root: Path,
    *,
    team: Team,
    progress: Progress,
    stage: str = "describing images",
) -> tuple[dict[str, Path], Extracted]:
    """Describe all images with every preset; returns the presets' folders below `root`, and a summary."""
    places = configs.folders(root, config.preset)
    by_folder = {places[preset]: model for preset, model in models.items()}
    return places, extract(dataset, by_folder, config.extraction, team=team, progress=progress, stage=stage)


def fit_all(
    models: Mapping[str, BCNN],
    samples: Sequence[Sample],
    root: Path,
    options: ExtractOptions,
    *,
    team: Team,
    progress: Progress,
) -> None:
    """Fit the parts of all networks that need it; the leader of a team does so, the others read what it found."""
    places = configs.folders(root, tuple(models))
    for preset, model in models.items():

        def fit(preset: str = preset, model: BCNN = model) -> None:
            own = within(progress, f"{preset}: ")
            fit_or_read(model, samples, places[preset], options, progress=own)

        team.lead(fit)
        fit()


def check_scorer(config: RunConfig) -> None:
    """Without fine-tuning there is a linear classifier to start a scorer from, and nothing else."""
    scorer = SCORERS.read(config.scorer).name
    if not getattr(SCORERS[scorer].make, "can_start", False):
        raise ValueError(
            f"train: expected a scorer that a linear classifier can be turned into, got {scorer!r}; train the network "
            "with it by --finetune."
        )


def check_trainable(dataset: Dataset, spec: str) -> None:
    trained = {sample.label for sample in dataset.of(TRAIN)}
    if not trained:
        raise ValueError(f"train: expected training images in {spec}, got none; see: bcnn datasets check.")
    untrained = sorted({sample.label for sample in dataset.of(TEST)} - trained)
    if untrained:
        raise ValueError(
            f"train: expected training images of every class that is tested, got {len(untrained)} classes without, "
            f"such as {shown(dataset.classes[untrained[0]])!r}."
        )


def check_readable(samples: Sequence[Sample], broken: Mapping[str, str], who: str) -> None:
    """Refuse to go on without a single image, and say what is wrong with the first."""
    if all(sample.name in broken for sample in samples):
        why = shown(broken[samples[0].name]).rstrip(".")
        raise ValueError(f"{who} images that can be read, got none; the first: {why}. See: bcnn datasets check.")


def claim(config: RunConfig, dataset: Dataset, out: Path, *, begun: tuple[str, ...] = ()) -> None:
    """Make the run folder, or make sure that results which are there are of the same run: none are lost.

    A folder with a file of `begun` holds results, as one with metrics.json does.
    """
    path = out / "config.yaml"
    found = find_runs(out, *(f"{below}{name}" for name in (METRICS, *begun) for below in ("", "*/")))
    if found and path.exists():
        stored, wanted = configs.from_plain(configs.read(path)).result_part(), config.result_part()
        if found[0].suffix == ".json":
            stored["images"] = json.loads(read_text(found[0])).get("listing")
            wanted["images"] = digest_of(listed(dataset), dataset.classes)
        differing = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
        if differing:
            name = differing[0]
            details = "others" if name == "images" else f"{stored.get(name)!r} instead of {wanted.get(name)!r}"
            raise ValueError(
                f"train: expected {out} to be new or a run of the same configuration, got one with {name} {details}; "
                "choose another --out (descriptors can be shared: --descriptors)."
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        configs.write(config, path)
    except OSError as error:
        raise OSError(f"train: expected to make the run folder {out}, got: {error}; choose another --out.") from None
