"""Fine-tuning on CUB_46: B-CNN and improved B-CNN before and after, and the schemes for the gradient, seed by seed.

Run:      python benchmarks/finetune.py cub:FOLDER --out runs/finetune        (any part again: it goes on where it was)
Cost:     about 13 minutes a run on 2 cores, AlexNet at 224 pixels, 15 epochs
Then:     bcnn compare runs/finetune/* --out runs/finetune_table
          bcnn train cub:FOLDER --backbone alexnet --size 224 --weights runs/finetune/bcnn_0/best.safetensors --preset
          bcnn,improved_bcnn --out runs/ignored_0     (the paper's "Faster", read as: no square root while training)
Paper:    Table 2 and the right of Table 3, there with VGG-M and VGG-D at 448 pixels on CUB-200.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SCHEMES = {
    "bcnn": ["--preset", "bcnn"],
    "lyapunov": ["--backward", "lyapunov"],
    "svd_truncated": ["--forward", "svd", "--backward", "svd_truncated", "--on-nonfinite", "skip"],
    "identity": ["--backward", "identity", "--lr", "0.0001"],  # with 0.001 it diverges within an epoch
    "unrolled": ["--forward", "newton_schulz", "--num-iters", "5", "--backward", "unrolled"],
    "svd": ["--forward", "svd", "--backward", "svd", "--on-nonfinite", "skip"],
    "log": ["--preset", "o2p", "--backward", "loewner"],
    "power": ["--normalize", "matrix_power(0.3)", "--normalize", "signed_sqrt", "--normalize", "l2",
              "--backward", "loewner"],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", help="the dataset, as for bcnn train")
    parser.add_argument("--out", type=Path, default=Path("runs/finetune"))
    parser.add_argument("--schemes", default="bcnn,lyapunov,svd_truncated,identity,unrolled")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--epochs", default="15")
    parser.add_argument("--size", default="224")
    options = parser.parse_args()
    for seed in options.seeds.split(","):
        for scheme in options.schemes.split(","):
            folder = options.out / f"{scheme}_{seed}"
            command = [sys.executable, "-m", "bcnn", "train", options.spec, "--finetune", "--backbone", "alexnet"]
            command += ["--size", options.size, "--epochs", options.epochs, "--seed", seed, "--out", str(folder)]
            command += ["--features", str(options.out.with_name(f"{options.out.name}_features") / scheme)]
            print(*command[1:], flush=True)
            if subprocess.run([*command, *SCHEMES[scheme]]).returncode:
                print(f"{folder}: not finished", flush=True)


if __name__ == "__main__":
    main()
