"""A small training: a folder of striped pictures, a network of three convolutions."""

import copy
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open

from bcnn.data.contract import TRAIN
from bcnn.descriptors.extract import ExtractOptions
from bcnn.finetune.checkpoint import LAST
from bcnn.finetune.config import FinetuneConfig
from bcnn.finetune.engine import start
from bcnn.finetune.loop import Task, finetune
from bcnn.finetune.plan import hold_out
from bcnn.finetune.source import Pixels
from bcnn.finetune.step import Images
from bcnn.models.bcnn import BCNN
from bcnn.models.build import build_model
from tests.descriptors.images import dataset_of, picture_folder

CONFIG = FinetuneConfig(epochs=3, lr=0.05, batch_size=6, val_share=0.25)


def quiet(stage, done, total, note=""):
    """Nobody listens."""


def small_network(preset="improved_bcnn", **options) -> BCNN:
    torch.manual_seed(0)
    return build_model(preset, backbone="tiny", weights=None, size=32, num_classes=3, **options)


def pictures(root: Path):
    return dataset_of(picture_folder(root, classes=3, train=8, test=2))


def task_on(dataset, folder: Path, *, config=CONFIG, model=None, batch=4, flips=True, seed=0, **changes) -> Task:
    model = copy.deepcopy(model) if model is not None else small_network()
    kept, held_out = hold_out(dataset.of(TRAIN), config.val_share, seed)
    parts = [
        Images(some, Pixels(some, model.config.preprocessing, ExtractOptions(batch=batch), 1.0))
        for some in (kept, held_out)
    ]
    task = Task(
        model=model, start=None, train=parts[0], held_out=parts[1] if held_out else None, config=config, flips=flips,
        seed=seed, batch=batch, folder=folder, identity={"seed": seed, "lr": config.lr},
    )  # fmt: skip
    return replace(task, **changes)


def run(task: Task, *, resume=True, progress=quiet):
    return finetune(task, start(), resume=resume, progress=progress)


def weights_of(model: BCNN) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


class EnoughError(Exception):
    pass


def stop_after(steps):
    def progress(stage, done, total, note=""):
        nonlocal steps
        steps -= 1
        if steps == 0:
            raise EnoughError

    return progress


def last_weights(folder):
    with safe_open(folder / LAST, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
