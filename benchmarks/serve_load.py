"""Many clients at once: does `bcnn serve` answer all of them, how fast, and does its memory stay what it is?

Run: python benchmarks/serve_load.py runs/demo/improved_bcnn --out benchmarks/results/serve_load
Cost: a thousand requests take one to five minutes with AlexNet at 128 pixels on two cores.

Starts the server as the command would, sends --requests photographs of the textures (half of them asking for regions as
well) from --clients threads, and reads the memory of the server from /proc, so it runs on Linux alone. A request fails
if its code is not 200. Writes OUT.csv, the memory after every tenth part of the requests, and OUT.md.
"""

import argparse
import io
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from bcnn import machine
from bcnn.data.contract import TEST
from bcnn.data.spec import load_dataset
from bcnn.files import write_csv, written_whole


def memory_mb(pid: int) -> float:
    """The memory of a process that is in use now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def pictures(count: int) -> list[bytes]:
    found = []
    for sample in load_dataset("textures").of(TEST)[::7][:count]:
        file = io.BytesIO()
        sample.open().save(file, format="PNG")
        found.append(file.getvalue())
    return found


class Load:
    """The requests of all clients, and what came of them."""

    def __init__(self, address: str, pid: int, total: int):
        self.address, self.pid, self.total = address, pid, total
        self.images = pictures(40)
        self.numbers, self.lock = itertools.count(), threading.Lock()
        self.seconds: list[float] = []
        self.failed: list[str] = []
        self.memory: list[dict] = []

    def client(self) -> None:
        with httpx.Client(base_url=self.address, timeout=120) as client:
            while (number := next(self.numbers)) < self.total:
                image = self.images[number % len(self.images)]
                begin = time.perf_counter()
                try:
                    answer = client.post(
                        "/predict", params={"explain": number % 2}, files=[("images", ("texture.png", image))]
                    )
                    wrong = "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:200]}"
                except httpx.HTTPError as error:
                    wrong = repr(error)
                self._note(time.perf_counter() - begin, wrong)

    def _note(self, seconds: float, wrong: str) -> None:
        with self.lock:
            self.seconds.append(seconds)
            self.failed += [wrong] * bool(wrong)
            if len(self.seconds) % max(1, self.total // 10) == 0:
                self.memory.append({"requests": len(self.seconds), "memory_mb": round(memory_mb(self.pid), 1)})
                print(self.memory[-1], f"{len(self.failed)} failed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    command = [sys.executable, "-m", "bcnn", "serve", str(options.run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split(" on ")[1].split("/ ;")[0]
            load = Load(address, server.pid, options.requests)
            begin = time.perf_counter()
            threads = [threading.Thread(target=load.client) for _ in range(options.clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - begin
        finally:
            server.terminate()
    write_csv(options.out.with_suffix(".csv"), load.memory)
    median, slow = np.quantile(load.seconds, (0.5, 0.99))
    facts, memory = machine.facts(), [row["memory_mb"] for row in load.memory]
    text = (
        f"{options.requests} requests from {options.clients} clients: {len(load.failed)} failed, "
        f"{options.requests / seconds:.1f} requests/s; an answer took {1000 * median:.0f} ms (median), "
        f"{1000 * slow:.0f} ms (99 %). Memory of the server: {memory[0]:.0f} MB after a tenth of them, "
        f"{max(memory):.0f} MB at most, {memory[-1]:.0f} MB at the end.\n\n"
        f"{facts['machine']}, {facts['threads']} threads, torch {facts['torch']}.\n"
    )
    with written_whole(options.out.with_suffix(".md")) as temporary:
        temporary.write_text(text)
    print(text, *load.failed[:5], sep="\n")
    sys.exit(1 if load.failed else 0)


if __name__ == "__main__":
    main()
