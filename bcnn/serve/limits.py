"""How much a server takes on at a time; what is more is refused in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of requests, of the queue and of the batches."""

    num_images: int = 16  # in one request
    image_bytes: int = 20_000_000  # of one file
    request_bytes: int = 64_000_000  # of all files of a request
    pixels: int = 50_000_000  # of one image, before it is made smaller
    time_s: float = 60.0  # until a request is answered
    queue: int = 128  # images that wait; a request for more is told to come again
    batch: int = 8  # images that go through the network together
    gather_ms: float = 5.0  # how long the first image of a batch waits for others
