"""Accuracy against the ridge eps, relative to the trace: how the defaults of `bcnn.Head` were chosen (docs/pooling.md).

Frozen features of the training images, descriptors for every eps and normalization, and the accuracy of one-vs-rest
linear SVMs (C = 1, as in the paper) in 5-fold cross-validation. The test images are never read.

Run:      python benchmarks/choose_eps.py --data CUB_200_2011 --backbone alexnet
Cost:     on two cores, 46 classes of birds: alexnet 10 minutes, vgg16 40
Expected: benchmarks/results/eps_<backbone>.csv
Resumes:  rows that are in the file already are left alone.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from sklearn.model_selection import StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

import bcnn
from bcnn import machine
from bcnn.data.preprocess import open_image
from bcnn.files import read_csv, write_csv
from bcnn.pooling.bilinear import pooled_matrix

EPS = (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
NORMALIZATIONS = {
    "sqrt + signed sqrt": ("matrix_sqrt", "signed_sqrt", "l2"),
    "sqrt": ("matrix_sqrt", "l2"),
    "log": ("matrix_log", "l2"),
    "log + signed sqrt": ("matrix_log", "signed_sqrt", "l2"),
}
FOLDS = 5


def training_images(data: Path) -> tuple[list[Path], np.ndarray]:
    """Paths and labels of the official training split, in the layout of CUB-200-2011."""

    def column(name: str) -> dict[str, str]:
        return dict(line.split(maxsplit=1) for line in (data / name).read_text().splitlines() if line.strip())

    paths, labels, train = column("images.txt"), column("image_class_labels.txt"), column("train_test_split.txt")
    chosen = [key for key in paths if train[key].strip() == "1"]
    return [data / "images" / paths[key].strip() for key in chosen], np.array([int(labels[key]) for key in chosen])


@torch.inference_mode()
def pooled(model: bcnn.BCNN, paths: list[Path]) -> torch.Tensor:
    """X Xᵀ / n of every image, without a ridge, in float32."""
    dtype = next(model.backbone.parameters()).dtype
    matrices = []
    for path in track(paths, "features"):
        image = model.config.preprocessing(open_image(path))[None].to(dtype)
        X = model.maps(image)[0].float().flatten(2)
        matrices.append(pooled_matrix(X * X.shape[-1] ** -0.5, torch.zeros(1)))
    return torch.cat(matrices)


@torch.inference_mode()
def descriptors(matrices: torch.Tensor, normalize: tuple[str, ...], eps: float) -> torch.Tensor:
    """What a head with this ridge makes of them."""
    head = bcnn.Head(normalize=normalize, thin=False)
    rows = []
    for part in matrices.split(16):
        A = part + eps * part.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] * torch.eye(part.shape[-1])
        rows.append(head.normalize_matrix(A))
    return torch.cat(rows)


def accuracy(gram: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Mean and standard error over folds."""
    scores = []
    for train, held_out in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(gram, labels):
        machine_ = OneVsRestClassifier(SVC(C=1.0, kernel="precomputed")).fit(gram[np.ix_(train, train)], labels[train])
        scores.append((machine_.predict(gram[np.ix_(held_out, train)]) == labels[held_out]).mean())
    return float(np.mean(scores)), float(np.std(scores) / FOLDS**0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder in the layout of CUB-200-2011")
    parser.add_argument("--backbone", default="alexnet")
    parser.add_argument("--bfloat16", action="store_true", help="run the backbone in bfloat16")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    target = options.out / f"eps_{options.backbone}.csv"
    records: list[dict[str, object]] = [*read_csv(target)] if target.exists() else []
    done = {(record["normalize"], float(str(record["eps"]))) for record in records}
    cells = [(name, eps) for name in NORMALIZATIONS for eps in EPS if (name, eps) not in done]
    if not cells:
        return
    paths, labels = training_images(options.data)
    model = bcnn.build_model("improved_bcnn", backbone=options.backbone)
    if options.bfloat16:
        model.backbone.bfloat16()
    matrices = pooled(model, paths)
    for name, eps in track(cells, "eps x normalization"):
        rows = descriptors(matrices, NORMALIZATIONS[name], eps)
        mean, error = accuracy((rows @ rows.mT).numpy(), labels)
        del rows
        records.append(
            {"backbone": options.backbone, "normalize": name, "eps": eps, "accuracy": mean, "standard_error": error,
             "num_images": len(paths), "num_classes": len(set(labels.tolist())), **machine.facts()}
        )  # fmt: skip
        write_csv(target, records)
        print(f"{name} eps={eps:g}: {100 * mean:.1f} % +- {100 * error:.1f}", flush=True)


if __name__ == "__main__":
    main()
