"""Whether an engine changes anything: descriptors and predictions of a dataset, by torch and by every other engine.

Every engine has a run of `bcnn train` of its own: descriptors, SVMs, predictions on test images. Printed are the
smallest cosine between descriptors of the same view, and how many test images are given another class.

Run:      python benchmarks/compare_engines.py cub:CUB_46 --backbone alexnet --out runs/engines_alexnet
          python benchmarks/compare_engines.py cub:CUB_46 --backbone vgg16 --per-class 3 --out runs/engines_vgg16
Cost:     on two cores ten minutes with alexnet; with vgg16 three seconds per image
Expected: cosines of at least 0.99999, no test image with another class
Resumes:  what is in the folder already is not computed again.
"""

import argparse
from collections import Counter
from pathlib import Path

from bcnn.bench.extract import smallest_cosine
from bcnn.data.spec import load_dataset
from bcnn.files import write_csv
from bcnn.models.engines import usable
from bcnn.runs.config import RunConfig
from bcnn.runs.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="a dataset of image files")
    parser.add_argument("--backbone", default="alexnet")
    parser.add_argument("--size", type=int)
    parser.add_argument("--per-class", type=int, help="take only so many images of each class, in training and in test")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    spec = options.spec if options.per_class is None else few(options.spec, options.per_class, options.out / "few.csv")
    predictions = {}
    for engine in ("torch", *(name for name in usable() if name != "torch")):
        config = RunConfig(spec=spec, backbone=options.backbone, size=options.size, engine=engine)
        (run,), _ = train(config, options.out / engine)
        predictions[engine] = {p.name: p.top[0][0] for p in run.predictions}
        assert run.metrics.test is not None
        cosine = smallest_cosine(options.out / "torch" / "descriptors", options.out / engine / "descriptors")
        first = predictions["torch"]
        other = sum(first[name] != found for name, found in predictions[engine].items())
        print(
            f"{engine}: accuracy {run.metrics.test.accuracy:.4f}, smallest cosine to torch's {cosine:.9f}, "
            f"{other} of {len(first)} test images with another class",
            flush=True,
        )


def few(spec: str, count: int, path: Path) -> str:
    """A dataset of the first images of every class and split."""
    dataset, seen, records = load_dataset(spec), Counter[tuple[int, str]](), []
    for sample in dataset.samples:
        seen[sample.label, sample.split] += 1
        if seen[sample.label, sample.split] <= count:
            label = dataset.classes[sample.label]
            records.append({"path": Path(str(sample.source)).resolve(), "label": label, "split": sample.split})
    write_csv(path, records)
    return f"csv:{path}"


if __name__ == "__main__":
    main()
