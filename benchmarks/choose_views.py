"""Whether to train on an image and its mirror image as two rows, or on the mean of both: how the default was chosen.

Held-out accuracy in 5-fold cross-validation on training images chooses; the accuracy on test images is told beside it.
Predictions always take both views: of a linear classifier the mean of two scores is the score of the mean. A mean is
one loss where two rows are two, so that it is tried with C = 2 as well.

Run:      bcnn extract cub:PATH --backbone alexnet --preset improved_bcnn,bcnn --out runs/views
          python benchmarks/choose_views.py alexnet=runs/views
Cost:     on two cores, 1,367 training images: a minute per head, after the images are described
Expected: benchmarks/results/views.csv
Resumes:  rows that are in the file already are left alone.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from bcnn import machine
from bcnn.classify.fit import fit_classifier
from bcnn.classify.paired import paired_p
from bcnn.data.contract import TEST, TRAIN
from bcnn.descriptors.folder import DescriptorRows, Descriptors
from bcnn.files import read_csv, write_csv

RESULTS = Path(__file__).parent / "results" / "views.csv"
WAYS = {"both": ("rows", 1.0), "mean": ("mean", 1.0), "mean, C = 2": ("mean", 2.0), "image alone": ("first", 1.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="NETWORK=FOLDER", help="descriptors of some presets with flips")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    records: list[dict[str, object]] = [*read_csv(options.out)] if options.out.exists() else []
    for text in options.folders:
        network, _, root = text.partition("=")
        for folder in sorted(path.parent for path in Path(root).rglob("descriptors.json")):
            done = {r["way"] for r in records if (r["network"], r["preset"]) == (network, folder.name)}
            if set(WAYS) <= done:
                continue
            records += [{"network": network, "preset": folder.name, **found} for found in measure(folder)]
            write_csv(options.out, records)
            for record in records[-len(WAYS) :]:
                print({key: record[key] for key in ("network", "preset", "way", "held_out", "p", "test")}, flush=True)


def measure(folder: Path) -> list[dict[str, object]]:
    """Accuracies of every way to train, and whether it differs from the first."""
    descriptors = Descriptors(folder)
    train, test = descriptors.matrix(TRAIN), descriptors.matrix(TEST)
    views, labels = by_image(train), train.labels[:: train.num_views]
    tested, truth = by_image(test).mean(1), test.labels[:: test.num_views]
    num_classes, found, right = len(descriptors.classes), [], {}
    for way, (take, C) in WAYS.items():
        rows = {"rows": views.flatten(0, 1), "mean": views.mean(1), "first": views[:, 0]}[take]
        each = len(rows) // len(labels)
        begin = time.perf_counter()
        fitted = fit_classifier(
            rows.numpy(), labels.repeat_interleave(each), num_classes, C=C, rescale="median",
            groups=np.repeat(np.arange(len(labels)), each),
        )  # fmt: skip
        assert fitted.cv_scores is not None
        right[way] = (fitted.cv_scores.argmax(1) == labels).double().numpy()
        hits = fitted.scores(tested).argmax(1) == truth
        found.append(
            {
                "way": way, "held_out": float(right[way].mean()), "p": paired_p(right[way], right["both"]),
                "test": float(hits.double().mean()), "num_rows": len(rows), "num_images": len(labels),
                "time_s": time.perf_counter() - begin, **machine.facts(),
            }
        )  # fmt: skip
    return found


def by_image(rows: DescriptorRows) -> torch.Tensor:
    """Descriptors, shape (images, views, d)."""
    return torch.cat(list(rows.parts())).unflatten(0, (-1, rows.num_views))


if __name__ == "__main__":
    main()
