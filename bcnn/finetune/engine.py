"""Lightning Fabric: processes, devices, precision; one machine or several."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..descriptors.team import PATIENCE

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MEETING_S = 600.0  # how long the machines wait for each other before the work begins
PER_CORE = 4  # processes: more of them only stand in each other's way
PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed"}


def start(*, devices: int = 1, nodes: int = 1, precision: str = "float32", device: str = "cpu") -> Fabric:
    """Join the processes that torchrun or a cluster started, or start `devices` of them here (and on every node).

    CUDA is written with care and untested.
    """
    from lightning_fabric import Fabric
    from lightning_fabric.strategies import DDPStrategy

    _quiet()
    kind = torch.device(device)
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if not by_torchrun:
        _check_devices(devices, kind)
    if by_torchrun:
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
    with _meeting(0 if by_torchrun else nodes, fabric):
        fabric.launch()
    return fabric


def _check_devices(devices: int, kind: torch.device) -> None:
    """Refuse more processes than this machine can take."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most, there = PER_CORE * cores, f"{cores} cores"
    if kind.type == "cuda":
        most = torch.cuda.device_count()
        there = f"{most} GPUs"
    if devices > most:
        raise ValueError(
            f"finetune: expected --devices of at most {most} on this machine, which has {there}, got {devices}; take "
            "fewer, or other machines by --nodes."
        )


@contextmanager
def _meeting(nodes: int, fabric: Fabric) -> Iterator[None]:
    """Bound the time in which several machines have to find each other; torchrun and clusters do that themselves."""
    from lightning_fabric.plugins.environments import LightningEnvironment

    environment = getattr(fabric.strategy, "cluster_environment", None)
    if nodes < 2 or not isinstance(environment, LightningEnvironment):
        yield
        return
    if not {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        raise ValueError(
            f"finetune: expected MASTER_ADDR and MASTER_PORT in the environment of {nodes} machines, and NODE_RANK "
            "from 0 on, got none; set them, start the command by torchrun, or leave out --nodes."
        )
    where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"

    def give_up() -> None:  # the other thread waits in a library that hears nothing
        if os.environ.get("LOCAL_RANK", "0") == "0":
            said = f"expected {nodes} machines at {where} within {MEETING_S / 60:g} minutes, got fewer"
            remedy = "give the same command on all of them, each with its own NODE_RANK, or leave out --nodes"
            print(f"bcnn: finetune: {said}; {remedy}.", file=sys.stderr, flush=True)
        os._exit(2)

    timer = threading.Timer(MEETING_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
