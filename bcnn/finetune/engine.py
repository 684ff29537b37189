"""Lightning Fabric: processes, devices, precision; one machine or several."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch

from ..descriptors.team import PATIENCE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}


def start(*, devices: int = 1, nodes: int = 1, precision: str = "float32", device: str = "cpu") -> Fabric:
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
    # Batch statistics are fixed, so there are no buffers to share.
    shared = DDPStrategy(process_group_backend=backend, timeout=PATIENCE, broadcast_buffers=False)
    fabric = Fabric(
        accelerator=kind.type,
        devices=own,
        num_nodes=nodes,
        strategy=shared if several else "auto",
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
    )
    _end_with_parent()
    fabric.launch()
    return fabric


def _end_with_parent() -> None:
    """A process that another one has started here does not outlive it; on Linux."""
    started_here = os.environ.get("LOCAL_RANK", "0") != "0" and "TORCHELASTIC_RUN_ID" not in os.environ
    if started_here and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() == 1:
            raise SystemExit(0)


def _quiet() -> None:
    """No advice from Lightning on what is as it should be."""
    import logging

    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning_fabric")
