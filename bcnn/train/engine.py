"""Lightning Fabric: processes, devices, precision; one machine or several."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}


def start(
    *, devices: int = 1, nodes: int = 1, precision: str = "float32", device: str = "cpu", loggers: Any = ()
) -> Fabric:
    """Join the processes that torchrun or a cluster started, or start `devices` of them here (and on every node).

    CUDA is written with care and untested.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    _quiet()
    kind = torch.device(device)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    several = devices * nodes > 1
    own: Any = devices
    if kind.type == "cuda" and not several:
        own = [kind.index or 0]
    backend = "cpu:gloo,cuda:nccl" if kind.type == "cuda" else "gloo"
    fabric = Fabric(
        accelerator=kind.type,
        devices=own,
        num_nodes=nodes,
        strategy=DDPStrategy(process_group_backend=backend, timeout=timedelta(days=7)) if several else "auto",
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
        loggers=list(loggers),
    )
    fabric.launch()
    return fabric


def _quiet() -> None:
    """No advice from Lightning on what is as it should be."""
    import logging

    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning_fabric")
