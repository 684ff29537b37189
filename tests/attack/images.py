"""Generated images of every broken kind: each is read or named with a reason, and the sound ones keep their results."""

import csv
import io
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
from PIL import Image

from .arena import FAULT, SMALL, Arena, remove

FORMATS = {".jpg": "JPEG", ".png": "PNG", ".gif": "GIF", ".bmp": "BMP", ".tif": "TIFF", ".webp": "WEBP", ".ppm": "PPM"}
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "I;16", "F")
PER_COMMAND = 50
SOUND = ("000.png", "999.png")
Looked = tuple[CompletedProcess[str] | None, int, bool]


def sound(chosen: random.Random, suffix: str = ".png") -> bytes:
    """A small picture of noise."""
    side = chosen.randint(1, 40), chosen.randint(1, 40)
    pixels = np.random.default_rng(chosen.randrange(2**32)).integers(0, 256, (*side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=FORMATS[suffix])
    return file.getvalue()


def truncated(chosen: random.Random, content: bytes) -> bytes:
    return content[: chosen.randrange(len(content))]


def flipped(chosen: random.Random, content: bytes) -> bytes:
    """Some bits are others."""
    data = bytearray(content)
    for _ in range(chosen.choice([1, 3, 30])):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    return bytes(data)


def header_flipped(chosen: random.Random, content: bytes) -> bytes:
    return flipped(chosen, content[:64]) + content[64:]


def zeroed(chosen: random.Random, content: bytes) -> bytes:
    at = chosen.randrange(len(content))
    size = chosen.randrange(len(content) - at) + 1
    return content[:at] + bytes(size) + content[at + size :]


def doubled(chosen: random.Random, content: bytes) -> bytes:
    at = chosen.randrange(len(content))
    return content[:at] + content


def noise(chosen: random.Random, content: bytes) -> bytes:
    return content[: chosen.choice([0, 4, 16])] + chosen.randbytes(chosen.choice([0, 1, 100, 5000]))


def other_tail(chosen: random.Random, content: bytes) -> bytes:
    """The beginning of one format and the end of another."""
    other = sound(chosen, chosen.choice(list(FORMATS)))
    return content[: chosen.randrange(1, 40)] + other[chosen.randrange(1, 40) :]


def huge_png(chosen: random.Random, content: bytes) -> bytes:
    """A header that announces billions of pixels, and a checksum that fits."""
    side = chosen.choice([0, 2**16, 2**31 - 1, 2**32 - 1])
    chunk = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, chosen.choice([2, 3, 6]), 0, 0, 0)
    body = zlib.compress(bytes(10_000_000))[:20_000]
    parts = [chunk, b"IDAT" + body, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )


def bomb_text(chosen: random.Random, content: bytes) -> bytes:
    """Text chunks in a PNG that unpack to far more than they are."""
    packed = zlib.compress(bytes(20_000_000))
    part = chosen.choice([b"zTXtk\0\0", b"iTXtk\0\1\0\0\0", b"iCCPk\0\0"]) + packed
    chunk = struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part))
    return content[:33] + chunk + content[33:] if content.startswith(b"\x89PNG") else content


def postscript(chosen: random.Random, content: bytes) -> bytes:
    return b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(%pipe%touch ran) (w) file\nshowpage\n%%EOF\n"


def damaged_exif(chosen: random.Random, content: bytes) -> bytes:
    exif = b"Exif\0\0" + chosen.choice([b"II*\0", b"MM\0*", b""]) + chosen.randbytes(chosen.choice([4, 40, 400]))
    part = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    return content[:2] + part + content[2:]


def odd_mode(chosen: random.Random, content: bytes) -> bytes:
    """Kinds of pixels that few programs write."""
    mode, file = chosen.choice(MODES), io.BytesIO()
    Image.new(mode, (chosen.choice([1, 7]), chosen.choice([1, 300]))).save(
        file, format="PNG" if mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else "TIFF"
    )
    return file.getvalue()


SPOIL = (truncated, flipped, header_flipped, zeroed, doubled, noise, other_tail, huge_png, bomb_text, postscript,
         damaged_exif, odd_mode)  # fmt: skip


def special(chosen: random.Random, path: Path) -> None:
    """What is no regular file of a sensible size."""
    kind = chosen.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(
            chosen.choice(["/dev/zero", "/dev/random", "/dev/stdin", "/proc/self/mem", path.name, "nowhere"])
        )
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        with path.open("wb") as file:
            file.truncate(40 * 10**9)
    elif kind == 4:
        path.touch()
    else:
        path.write_bytes(b"\x89PNG\r\n\x1a\n")


def attack(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """Images in folders of fifty, with a sound one before and after them."""
    row = "generated images, broken in every way"
    chosen = arena.random(row)
    model = arena.root / "model"
    if not model.exists():
        arena.expect("train", arena.pictures, *SMALL, "--out", model)
    good = arena.pictures / "test" / "class_1" / "0.png"
    calm = arena.run("predict", model, good, "--format", "jsonl")
    assert calm is not None
    expected = json.loads(calm.stdout)["top"]
    for number in range(-(-num // PER_COMMAND)):
        command = _by_predict if number % 2 else _by_evaluate
        yield partial(_case, arena, row, chosen.randrange(2**32), good, partial(command, arena, expected))


def _case(arena: Arena, row: str, seed: int, good: Path, command: Callable[[Path], Looked]) -> None:
    root = arena.folder()
    _make(random.Random(seed), root, good)
    result, read, is_same = command(root)
    tally = arena.tally(row)
    if result is None or result.returncode not in (0, 1):
        arena.judge(row, ["seed", seed], result)
        arena.changed(row, f"seed {seed}: no results")
        return
    for kind, count in (("tried", PER_COMMAND), ("succeeded", read), ("refused", PER_COMMAND - read)):
        for _ in range(count):
            tally.add(kind)
    if FAULT.search(result.stderr):
        tally.add("tracebacks", f"seed {seed}: {result.stderr[-1000:]}")
    if not is_same or list(arena.root.rglob("ran")):
        arena.changed(row, f"seed {seed}: {result.stderr[-500:]}")
    remove(root)


def _make(chosen: random.Random, root: Path, good: Path) -> None:
    """Fifty broken ones in test/class_1, and a sound one before and after them and in train/."""
    folder = root / "test" / "class_1"
    for place in (folder, root / "train" / "class_0", root / "train" / "class_1"):
        place.mkdir(parents=True)
        for name in SOUND:
            (place / name).write_bytes(good.read_bytes())
    for number in range(PER_COMMAND):
        path = folder / f"{number + 1:03d}{chosen.choice(list(FORMATS))}"
        if chosen.random() < 0.08:
            special(chosen, path)
        else:
            path.write_bytes(chosen.choice(SPOIL)(chosen, sound(chosen, chosen.choice(list(FORMATS)))))


def _by_predict(arena: Arena, expected: list[Any], root: Path) -> Looked:
    """How it ended, how many of the broken ones were read after all, and whether the sound ones are as ever."""
    folder = root / "test" / "class_1"
    # A folder with the name of an image is no image: it is looked into, and there is nothing in it.
    names = [path for path in sorted(folder.iterdir()) if not path.is_dir()]
    result = arena.run("predict", arena.root / "model", *names, "--format", "jsonl")
    lines = [json.loads(line) for line in result.stdout.splitlines()] if result else []
    found = {line["image"]: line["top"] for line in lines}
    is_same = [found.get(str(folder / name)) for name in SOUND] == [expected] * 2
    told = sum(str(folder) in line for line in result.stderr.splitlines()) if result else 0
    return result, len(found) - 2, is_same and len(found) + told == len(names)


def _by_evaluate(arena: Arena, expected: list[Any], root: Path) -> Looked:
    """The same of another command, which tells of the broken ones in its results."""
    result = arena.run("evaluate", arena.root / "model", root, "--out", root / "out", "--json")
    if result is None or result.returncode:
        return result, 0, False
    (about,) = json.loads(result.stdout)["runs"]
    num_files = sum(not path.is_dir() for path in (root / "test" / "class_1").iterdir())
    with (root / "out" / "predictions.csv").open(newline="") as file:
        found = {Path(row["image"]).name: (row["class1"], row["probability1"]) for row in csv.DictReader(file)}
    best = expected[0]["class"], f"{expected[0]['probability']:.6f}"
    is_same = [found.get(name) for name in SOUND] == [best] * 2
    return result, about["num_test"] - 2, is_same and about["num_test"] + len(about["broken"]) == num_files
