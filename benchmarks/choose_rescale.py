"""Whether one-vs-rest SVMs gain by being brought to one scale (`--rescale median`): how the default was chosen.

Held-out accuracy in 5-fold cross-validation on training images alone, without and with it, for every head of Table 1,
from the pooled features that `bcnn reproduce` has stored. A dataset of many classes may be cut into several.

Run:      bcnn reproduce table1_normalization --data cub=PATH --networks alexnet --no-finetune --out runs/birds
          python benchmarks/choose_rescale.py birds=runs/birds/descriptors/*/bilinear --classes 50
Cost:     on two cores, 50 classes of 30 images: a minute a head
Expected: benchmarks/results/rescale.csv
Resumes:  rows that are in the file already are left alone.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from bcnn import machine
from bcnn.classify import CLASSIFIERS
from bcnn.classify.calibrate import FOLD_TOL, assign_folds
from bcnn.classify.flip import average_views
from bcnn.classify.paired import paired_p
from bcnn.classify.rescale import RESCALES
from bcnn.data.contract import TRAIN
from bcnn.descriptors.folder import Descriptors
from bcnn.experiments.table1_normalization import NORMALIZATIONS
from bcnn.experiments.workshop import describe_stored
from bcnn.files import read_csv, write_csv
from bcnn.pooling.head import Head

RESULTS = Path(__file__).parent / "results" / "rescale.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="NAME=FOLDER", help="stored pooled features of bcnn reproduce")
    parser.add_argument("--classes", type=int, help="cut a dataset into parts of so many classes, in their order")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    records: list[dict[str, object]] = [*read_csv(options.out)] if options.out.exists() else []
    done = {(record["dataset"], record["head"]) for record in records}
    for text in options.folders:
        name, _, folder = text.partition("=")
        stored = Descriptors(Path(folder)).matrix(TRAIN)
        labels = torch.as_tensor(stored.labels)
        for part, chosen in parts(labels, options.classes):
            title = f"{name}, classes {part}" if part else name
            for head in NORMALIZATIONS:
                if (title, head) not in done:
                    records.append({"dataset": title, "head": head, **measure(stored, chosen, head)})
                    write_csv(options.out, records)
                    print({key: records[-1][key] for key in ("dataset", "head", "none", "median", "p")}, flush=True)


def parts(labels: torch.Tensor, num_classes: int | None) -> list[tuple[str, torch.Tensor]]:
    """Names of parts, and which rows they are."""
    if num_classes is None:
        return [("", torch.arange(len(labels)))]
    count = int(labels.max()) + 1
    return [
        (f"{a + 1} to {min(a + num_classes, count)}", ((labels >= a) & (labels < a + num_classes)).nonzero()[:, 0])
        for a in range(0, count, num_classes)
    ]


def measure(stored: object, chosen: torch.Tensor, name: str) -> dict[str, object]:
    """Accuracy of held-out images by every way to rescale, and whether they differ."""
    normalize, eps = NORMALIZATIONS[name]
    head = Head(normalize=normalize, eps=eps).eval()
    wanted, rows, at = set(chosen.tolist()), [], 0
    for part in stored.parts():  # type: ignore[attr-defined]
        own = [i for i in range(len(part)) if at + i in wanted]
        if own:
            rows.append(describe_stored(head, part[own]))
        at += len(part)
    X = torch.cat(rows).double()
    _, labels = torch.unique(torch.as_tensor(stored.labels)[chosen], return_inverse=True)  # type: ignore[attr-defined]
    groups = stored.groups.numpy()[chosen.numpy()]  # type: ignore[attr-defined]
    _, first = np.unique(groups, return_index=True)
    truth = labels[first]
    found = {name: values.argmax(1) == truth for name, values in held_out(X @ X.T, labels, groups).items()}
    p = paired_p(*(found[name].numpy().astype(float) for name in ("median", "none")))
    accuracies = {name: float(right.double().mean()) for name, right in found.items()}
    return {**accuracies, "p": p, "num_images": len(first), "num_classes": int(labels.max()) + 1, **machine.facts()}


def held_out(K: torch.Tensor, labels: torch.Tensor, groups: np.ndarray) -> dict[str, torch.Tensor]:
    """Scores of every image by SVMs that have not seen it, for every way to rescale; each fold is solved once."""
    k = int(labels.max()) + 1
    fold = assign_folds(labels.numpy(), groups, folds=5, seed=0)
    values = {name: torch.zeros(len(K), k, dtype=torch.float64) for name in RESCALES}
    for i in range(int(fold.max()) + 1):
        unseen = torch.from_numpy(fold == i).nonzero()[:, 0]
        seen = torch.from_numpy(fold != i).nonzero()[:, 0]
        inner = K[seen][:, seen]
        solution = CLASSIFIERS["svm"].solve(inner, labels[seen], k, C=1.0, tol=FOLD_TOL)
        for name, rescale in RESCALES.items():
            beta, bias = rescale(inner, labels[seen], solution.beta, solution.bias)
            values[name][unseen] = K[unseen][:, seen] @ beta + bias
    return {name: average_views(own, groups) for name, own in values.items()}


if __name__ == "__main__":
    main()
