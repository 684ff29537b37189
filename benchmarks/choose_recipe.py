"""Which recipe of fine-tuning is better: how the default of `--recipe` was chosen.

A quarter of the training images is held out, drawn anew for every seed; the network is fine-tuned on the others, and
its accuracy on those held out is taken after the last epoch. Test images play no part in it.

Run:      python benchmarks/choose_recipe.py cub:CUB_200_2011 --backbone alexnet --size 224 --freeze-until conv3
Cost:     on two cores, 46 classes of 30 images, ten epochs: three minutes a run, nine runs
Expected: benchmarks/results/recipes.csv
Resumes:  rows that are in the file already are left alone, a run that was interrupted goes on.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from bcnn import machine
from bcnn.files import read_csv, write_csv

RESULTS = Path(__file__).parent / "results" / "recipes.csv"
RECIPES = {
    "ours": ["--recipe", "ours"],
    "paper": ["--recipe", "paper"],
    "ours, lr 0.01": ["--recipe", "ours", "--lr", "0.01"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="the dataset")
    parser.add_argument("--backbone", default="alexnet")
    parser.add_argument("--size", default="224")
    parser.add_argument("--freeze-until", default="conv3")
    parser.add_argument("--preset", default="improved_bcnn")
    parser.add_argument("--epochs", default="10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/recipes"), help="the folder for runs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    records: list[dict[str, object]] = [*read_csv(given.out)] if given.out.exists() else []
    done = {(record["recipe"], record["seed"]) for record in records}
    for seed in given.seeds:
        for recipe, options in RECIPES.items():
            if (recipe, str(seed)) in done:
                continue
            folder = given.work / f"{recipe.replace(', ', '_').replace(' ', '')}_{seed}"
            command = [
                sys.executable, "-m", "bcnn", "train", given.spec, "--finetune", *options, "--backbone", given.backbone,
                "--size", given.size, "--freeze-until", given.freeze_until, "--preset", given.preset,
                "--epochs", given.epochs, "--val-share", "0.25", "--seed", str(seed), "--out", str(folder),
                "--descriptors", str(given.work / f"descriptors_{seed}"),
            ]  # fmt: skip
            subprocess.run(command, check=True)
            epochs = read_csv(folder / "epochs.csv")
            first, last = epochs[0], epochs[-1]
            records.append(
                {
                    "recipe": recipe, "seed": str(seed), "before": first["val_accuracy"], "after": last["val_accuracy"],
                    "best": str(max(float(own["val_accuracy"]) for own in epochs)), "held_out": last["held_out"],
                    "epochs": given.epochs, "backbone": given.backbone, "size": given.size, "preset": given.preset,
                    **machine.facts(),
                }
            )  # fmt: skip
            write_csv(given.out, records)
    for recipe in RECIPES:
        own = [record for record in records if record["recipe"] == recipe]
        shown = ", ".join(f"{100 * float(str(r['before'])):.1f} to {100 * float(str(r['after'])):.1f}" for r in own)
        print(f"{recipe}: held-out accuracy in % before and after, per seed: {shown}")


if __name__ == "__main__":
    main()
