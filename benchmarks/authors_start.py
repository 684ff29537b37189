"""How far the authors' logistic regression goes: their descent beside ours with several C.

Their scripts start the last layer of fine-tuning by stochastic gradient descent on the descriptors of the training
images without their flips: 300 epochs, batches of 256, learning rate 1 (0.001, times 1000 of the layer), momentum 0.9,
no weight decay. It ends far from the minimum. Ours is solved exactly with a penalty: which C comes nearest?

Run: bcnn extract cub:CUB_46 --backbone alexnet --out runs/birds && python benchmarks/authors_start.py runs/birds
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bcnn.classify.logistic import solve_logistic
from bcnn.data.contract import TRAIN
from bcnn.descriptors.folder import Descriptors

EPOCHS, BATCH, LR, MOMENTUM = 300, 256, 1.0, 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder of bcnn extract, with flips")
    parser.add_argument("--C", type=float, nargs="+", default=[1.0, 10.0, 100.0, 1000.0])
    options = parser.parse_args()
    matrix = Descriptors(options.folder).matrix(TRAIN)
    if matrix.num_views != 2:
        parser.error(f"expected descriptors of images and flips, got {matrix.num_views} view(s) in {options.folder}")
    X = torch.cat(list(matrix.parts())).float()
    labels = torch.as_tensor(matrix.labels)
    k = int(labels.max()) + 1
    print("| start of the last layer | loss, images | loss, flips | length of the weights |")
    print("| --- | ---: | ---: | ---: |")
    weight, bias = descend(X[::2], labels[::2], k)
    show(f"the authors' descent, {EPOCHS} epochs", X @ weight + bias, labels, weight.norm())
    K = X.double() @ X.double().T
    for C in options.C:
        found = solve_logistic(K, labels, k, C=C)
        scores = K @ found.beta
        length = (found.beta * scores).sum().sqrt()
        show(f"ours, C = {C:g}", scores + found.bias, labels, length)


def descend(X: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Weights (d, k) and bias (k,) after the authors' epochs, from their random start."""
    torch.manual_seed(0)
    weight = (0.001 * torch.randn(X.shape[1], k)).requires_grad_()
    bias = torch.full((k,), 0.1).requires_grad_()
    optimizer = torch.optim.SGD([weight, bias], lr=LR, momentum=MOMENTUM)
    for _ in range(EPOCHS):
        for part in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(X[part] @ weight + bias, labels[part]).backward()
            optimizer.step()
    return weight.detach(), bias.detach()


def show(name: str, scores: Tensor, labels: Tensor, length: Tensor) -> None:
    """One row."""
    images, flips = (float(cross_entropy(scores[i::2], labels[i::2])) for i in (0, 1))
    print(f"| {name} | {images:.3f} | {flips:.3f} | {float(length):.0f} |")


if __name__ == "__main__":
    main()
