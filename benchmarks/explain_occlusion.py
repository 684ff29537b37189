"""Do the marked regions decide? Deletes a tenth of each photograph and measures how far the score of its class falls.

Run: python benchmarks/explain_occlusion.py cub:CUB_46 runs/birds/bcnn runs/birds/improved_bcnn
     --out benchmarks/results/explain_occlusion_cub46_alexnet
Cost: about two seconds per photograph and run with AlexNet at 448 pixels on two busy cores.

For each of --images test photographs, chosen by --seed, the score of the predicted class is measured again after a
tenth of the square has been filled with its mean colour:
  marked   the tenth with the largest shares, as `bcnn explain` marks it;
  moved    a region of the same shape, mirrored or not, moved by chance (and wrapped around at the edges), twice;
  other    the tenth that is marked on another photograph: objects tend to be in the middle, and this tells how much
           of the effect is due to that alone;
  bright   the tenth with the longest features, whatever the class.
Writes OUT.csv, a line per photograph, and OUT.md, a table per run. Interrupted, the same command goes on where it was.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from bcnn import machine
from bcnn.data.contract import TEST
from bcnn.data.spec import load_dataset
from bcnn.files import read_csv, write_csv, written_whole
from bcnn.models.views import to_batch
from bcnn.runs.explain import split_scores
from bcnn.runs.predict import Recognizer, open_run

PART = 0.1
WAYS = {
    "marked": "the marked tenth",
    "moved": "the same shape, moved by chance",
    "other": "what is marked on another photograph",
    "bright": "the tenth with the longest features",
}


def top_part(values: torch.Tensor, side: int) -> np.ndarray:
    """True for the tenth of the pixels with the largest values, shape (B, side, side); values (B, h, w)."""
    large = functional.interpolate(values[:, None].double(), size=(side, side), mode="bicubic")[:, 0].numpy()
    flat = large.reshape(len(large), -1)
    chosen = np.zeros_like(flat, dtype=bool)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : round(PART * side * side)]
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen.reshape(large.shape)


def moved(mask: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    mask = mask[:, ::-1] if generator.random() < 0.5 else mask
    return np.roll(mask, generator.integers(0, mask.shape[0], 2), axis=(0, 1))


def filled(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask[..., None], picture.mean((0, 1)).round().astype(np.uint8), picture)


def logits_of(recognizer: Recognizer, pictures: list[np.ndarray], labels: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and probabilities of the classes."""
    logits = recognizer.logits(pictures).double()
    rows = torch.arange(len(labels))
    scores = recognizer.temperature * logits[rows, labels]
    return scores.numpy(), logits.softmax(1)[rows, labels].numpy()


def measure(run: Path, recognizer: Recognizer, some, generator: np.random.Generator) -> list[dict]:
    """The records of a batch of photographs."""
    preprocessing = recognizer.model.preprocessing
    pictures = [np.asarray(preprocessing.fit(sample.open())) for sample in some]
    labels = recognizer.logits(pictures).argmax(1).tolist()
    marked = top_part(split_scores(recognizer, pictures, labels).shares, preprocessing.size)
    with torch.inference_mode():
        maps = recognizer.model.maps(to_batch(pictures, preprocessing))[0]
    masks = {
        "marked": [marked],
        "moved": [np.stack([moved(mask, generator) for mask in marked]) for _ in range(2)],
        "other": [np.roll(marked, 1, axis=0)],
        "bright": [top_part(maps.square().sum(1), preprocessing.size)],
    }
    scores, shares = logits_of(recognizer, pictures, labels)
    rows = [
        {"run": run.name, "image": sample.name, "is_right": int(label == sample.label), "score": s, "probability": p}
        for sample, label, s, p in zip(some, labels, scores, shares, strict=True)
    ]
    for way, several in masks.items():
        after = [
            logits_of(recognizer, [filled(p, m) for p, m in zip(pictures, own, strict=True)], labels) for own in several
        ]
        for i, row in enumerate(rows):
            row[f"score_fall_{way}"] = row["score"] - float(np.mean([s[i] for s, _ in after]))
            row[f"probability_fall_{way}"] = row["probability"] - float(np.mean([p[i] for _, p in after]))
    return rows


def interval(values: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    """A 95 % interval of the mean by a bootstrap over the photographs."""
    means = [generator.choice(values, len(values)).mean() for _ in range(2000)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def table(records: list[dict]) -> str:
    lines = []
    for run in dict.fromkeys(record["run"] for record in records):
        own = [record for record in records if record["run"] == run]
        falls = {way: np.array([float(r[f"score_fall_{way}"]) for r in own]) for way in WAYS}
        chances = {way: np.array([float(r[f"probability_fall_{way}"]) for r in own]) for way in WAYS}
        score = np.mean([float(r["score"]) for r in own])
        lines += [
            f"**{run}, {len(own)} photographs, mean score of the predicted class {score:+.2f}**", "",
            "| deleted | score falls by | 95 % interval | probability falls by, points | marked falls further |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
        generator = np.random.default_rng(0)
        for way, words in WAYS.items():
            low, high = interval(falls[way], generator)
            further = "" if way == "marked" else f"{100 * np.mean(falls['marked'] > falls[way]):.0f} % of photographs"
            lines.append(
                f"| {words} | {falls[way].mean():.3f} | {low:.3f} to {high:.3f} | {100 * chances[way].mean():.1f} "
                f"| {further} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tests = load_dataset(options.spec).of(TEST)
    generator = np.random.default_rng(options.seed)
    samples = [tests[i] for i in generator.permutation(len(tests))[: options.images].tolist()]
    table_file = options.out.with_suffix(".csv")
    records: list[dict] = [dict(row) for row in read_csv(table_file)] if table_file.exists() else []
    done = {(record["run"], record["image"]) for record in records}
    recognizers = {run: open_run(run, batch=options.batch) for run in options.runs}
    for start in range(0, len(samples), options.batch):
        some = samples[start : start + options.batch]
        for run, recognizer in recognizers.items():
            if (run.name, some[0].name) not in done:
                chance = np.random.default_rng([options.seed, start])
                records += measure(run, recognizer, some, chance)
                write_csv(table_file, records)
                print(f"{run.name}: {start + len(some)} of {len(samples)}", flush=True)
    facts = machine.facts()
    about = f"{facts['machine']}, torch {facts['torch']}, seed {options.seed}."
    with written_whole(options.out.with_suffix(".md")) as temporary:
        temporary.write_text(f"{table(records)}\n{about}\n")
    print(table(records))


if __name__ == "__main__":
    main()
