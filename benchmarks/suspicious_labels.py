"""How many labels that were flipped on purpose are found, by our own scores and by cleanlab on the same probabilities.

Run:      python benchmarks/suspicious_labels.py NAME=DESCRIPTORS... --out benchmarks/results/labels.csv
          (DESCRIPTORS: the folder descriptors/ of a run of bcnn train; cleanlab is measured where it is installed)
Cost:     some minutes per dataset
Expected: `bcnn.classify.suspects` finds as many as cleanlab's rules do in a shorter list; so cleanlab is no dependency
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy
import torch

from bcnn.classify.gram import as_matrix, kernel_of
from bcnn.classify.suspects import HeldOut, judged_rows, probabilities_in, suspects
from bcnn.data.contract import TRAIN
from bcnn.descriptors.folder import Descriptors
from bcnn.files import write_csv

SHARE, SEEDS = 0.05, (0, 1, 2)
Method = Callable[[HeldOut, int], set[int]]  # of the probabilities and of how many were flipped


def flipped(labels: torch.Tensor, groups: torch.Tensor, num_classes: int, seed: int) -> tuple[torch.Tensor, set[int]]:
    """The labels with those of so many images changed to another class, each as likely, and which images these are."""
    random = numpy.random.default_rng(seed)
    images = torch.unique(groups).numpy()
    chosen = random.choice(images, round(SHARE * len(images)), replace=False)
    changed = labels.clone()
    for image in chosen:
        rows = groups == int(image)
        changed[rows] = (labels[rows] + int(random.integers(1, num_classes))) % num_classes
    return changed, set(map(int, chosen))


def own(given: HeldOut, number: int) -> set[int]:
    return {one.image for one in suspects(given)}


def own_first(given: HeldOut, number: int) -> set[int]:
    """As many as were flipped, from the start of the list."""
    return {one.image for one in suspects(given)[:number]}


def argmax(given: HeldOut, number: int) -> set[int]:
    """Every image that is held for another class, sure or not."""
    wrong = given.probabilities.argmax(1) != given.labels
    return set(given.images[wrong].tolist())


def cleanlab_methods() -> dict[str, Method]:
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        print("cleanlab is not installed: left out")
        return {}

    def by(name: str) -> Method:
        def found(given: HeldOut, number: int) -> set[int]:
            mask = find_label_issues(given.labels.numpy(), given.probabilities.numpy(), filter_by=name, n_jobs=1)
            return set(given.images[torch.from_numpy(mask)].tolist())

        return found

    def first(given: HeldOut, number: int) -> set[int]:
        scores = get_label_quality_scores(given.labels.numpy(), given.probabilities.numpy())
        return set(given.images[torch.from_numpy(numpy.argsort(scores, kind="stable")[:number].copy())].tolist())

    rules = ("prune_by_noise_rate", "prune_by_class", "both", "confident_learning")
    return {**{f"cleanlab, {name}": by(name) for name in rules}, "cleanlab, the first 5 %": first}


def scored(name: str, folder: Path, keep: Path) -> list[tuple[HeldOut, set[int]]]:
    """Held-out probabilities with the labels of each seed, and which images were flipped; kept for another rule."""
    paths = [keep / f"{name}_{seed}.npz" for seed in SEEDS]
    if not all(path.exists() for path in paths):
        keep.mkdir(parents=True, exist_ok=True)
        descriptors = Descriptors(folder)
        rows, k = descriptors.matrix(TRAIN), len(descriptors.classes)
        kernel = kernel_of(as_matrix(rows), torch.arange(len(rows.labels)))
        for seed, path in zip(SEEDS, paths, strict=True):
            labels, wrong = flipped(rows.labels, rows.groups, k, seed)
            assert len(judged_rows(labels, rows.groups)) == len(labels)
            given = probabilities_in(kernel, labels, rows.groups, k, seed=seed)
            told = {"accuracy": given.accuracy, "wrong": sorted(wrong)}
            numpy.savez(path, images=given.images, labels=given.labels, probabilities=given.probabilities, **told)
            print(f"{name}, seed {seed}: held-out accuracy {given.accuracy:.3f}", flush=True)
    found = []
    for path in paths:
        with numpy.load(path) as own:
            tensors = (torch.from_numpy(own[part]) for part in ("images", "labels", "probabilities"))
            found.append((HeldOut(*tensors, float(own["accuracy"])), set(own["wrong"].tolist())))
    return found


def measure(name: str, folder: Path, keep: Path) -> list[dict[str, object]]:
    methods = {
        "bcnn": own,
        "bcnn, the first 5 %": own_first,
        "held for another class": argmax,
        **cleanlab_methods(),
    }
    records = []
    seeds = scored(name, folder, keep)
    for method, find in methods.items():
        shares = []
        for given, wrong in seeds:
            found = find(given, len(wrong))
            shares.append((len(found & wrong) / len(wrong), len(found & wrong) / max(1, len(found)), len(found)))
        recall, precision, listed = numpy.mean(shares, axis=0).tolist()
        records.append(
            {
                "dataset": name,
                "method": method,
                "images": len(seeds[0][0].images),
                "flipped": len(seeds[0][1]),
                "recall": round(recall, 4),
                "precision": round(precision, 4),
                "listed": round(listed, 1),
                "held_out_accuracy": round(float(numpy.mean([given.accuracy for given, _ in seeds])), 4),
            }
        )
    return records


def named(text: str) -> tuple[str, Path]:
    name, path = text.split("=", 1)
    return name, Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="NAME=DESCRIPTORS")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--keep", type=Path, default=Path("runs/labels"), help="folder for held-out probabilities")
    given = parser.parse_args()
    records = [record for text in given.datasets for record in measure(*named(text), given.keep)]
    write_csv(given.out, records)
    for record in records:
        print(record)


if __name__ == "__main__":
    main()
