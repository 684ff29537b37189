"""A second-order head in any PyTorch model: `bcnn.Head` on a small CNN, one training step.

Run:      python examples/drop_in.py
Expected: a finite loss and a finite gradient in the first layer, although 36 locations give a matrix of rank 36 of 64.
"""

import torch
from torch import nn

import bcnn


def main() -> None:
    torch.manual_seed(0)
    # Pooling, matrix square root, signed square root and l2; "bcnn", "o2p" and options of your own go in its place.
    head = bcnn.Head("improved_bcnn", channels=64)
    model = nn.Sequential(nn.Conv2d(3, 64, 5, stride=5), nn.ReLU(), head, nn.Linear(head.out.length, 4))
    images, labels = torch.randn(8, 3, 30, 30), torch.arange(8) % 4
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    gradient = model[0].weight.grad
    print(f"{head.out.length} numbers describe an image")
    print(
        f"loss {loss.item():.4f}, gradient norm {gradient.norm().item():.4f}, all finite: {gradient.isfinite().all()}"
    )


if __name__ == "__main__":
    main()
