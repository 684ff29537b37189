"""The matrix square root as a layer of any PyTorch model: a second-order head on a small CNN, one training step.

Run:      python examples/drop_in.py
Expected: a finite loss and a finite gradient in the first layer, although 36 locations give a matrix of rank 36 of 64.
"""

import torch
from torch import nn

import bcnn


class SecondOrderHead(nn.Module):
    """A = X Xᵀ / n + eps I, its square root, signed square root, l2, and a linear classifier."""

    def __init__(self, channels: int, num_classes: int, eps: float = 1e-3):
        super().__init__()
        self.eps = eps
        self.root = bcnn.MatrixSqrt()
        self.classifier = nn.Linear(channels * channels, num_classes)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        X = maps.flatten(2)  # (batch, channels, locations)
        A = X @ X.mT / X.shape[-1] + self.eps * torch.eye(X.shape[1])
        Z = self.root(A).flatten(1)
        Z = Z.sign() * (Z.abs() + 1e-12).sqrt()
        return self.classifier(nn.functional.normalize(Z))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 5, stride=5), nn.ReLU(), SecondOrderHead(64, num_classes=4))
    images, labels = torch.randn(8, 3, 30, 30), torch.arange(8) % 4
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    gradient = model[0].weight.grad
    print(
        f"loss {loss.item():.4f}, gradient norm {gradient.norm().item():.4f}, all finite: {gradient.isfinite().all()}"
    )


if __name__ == "__main__":
    main()
