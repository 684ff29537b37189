"""A workshop with a few pictures and a tiny network, in which everything takes seconds."""

from pathlib import Path

from bcnn.experiments import EXPERIMENTS
from bcnn.experiments.plan import make_plan
from bcnn.experiments.records import DatasetInfo, Outcome, Subject
from bcnn.experiments.results import FILE, Results
from bcnn.experiments.run import carry_out, register
from bcnn.experiments.run_folder import TunedResult
from bcnn.experiments.workshop import Workshop
from tests.descriptors.images import picture_folder


def make_shop(root: Path, **options) -> Workshop:
    """With one dataset, called cub as in the paper."""
    if not (root / "pictures").exists():
        picture_folder(root / "pictures", classes=3, train=6, test=4)
    return Workshop({"cub": f"folder:{root / 'pictures'}"}, root / "out", weights=None, **options)


def make_subject(shop: Workshop, **options) -> Subject:
    small = {"network": "tiny", "weights": "none", "size": 32, "tuned_size": 32, "epochs": 1, "dim": 8}
    own = {**small, **options}
    digest = shop.parameters("cub", own["network"], own["size"])
    return Subject(dataset="cub", images=shop.images("cub"), parameters=digest, **own)


def measure(shop: Workshop, subject: Subject, artifacts=tuple(EXPERIMENTS), **options) -> tuple[Results, list]:
    """Everything that is not there yet."""
    results = Results(shop.out / FILE)
    register([subject], results, shop)
    failures = carry_out(make_plan(artifacts, [subject], results, shop, **options), results, shop)
    return results, failures


def info(subject: Subject, *, num_classes: int = 3, num_images: int = 30) -> DatasetInfo:
    """What tables say of a dataset that is not there."""
    classes = tuple(f"class_{i}" for i in range(num_classes))
    return DatasetInfo(classes, num_classes, num_images, num_images - 10, 10, subject.dataset, subject.images)


def tuned_outcome(**own) -> Outcome[TunedResult]:
    """A fine-tuning that somebody might have done."""
    rest = {
        "accuracy": 0.5, "before": None, "softmax": None, "num_test": 10, "num_broken": 0, "truth": (), "predicted": (),
        "descriptor_length": 4, "history": (), "train_s": 1.0, "best_epoch": 1, "selected_on": "validation",
        "num_skipped": 0, "num_gradient_exceptions": 0,
    }  # fmt: skip
    return Outcome(TunedResult(**{**rest, **own}))
