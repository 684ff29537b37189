"""Files that somebody has damaged or forged: models, run folders, results, and names of classes."""

import csv
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from tests.descriptors.images import draw

from .arena import SMALL, TUNED, Arena, Case, remove, results_of
from .images import doubled, flipped, header_flipped, truncated, zeroed

Ended = CompletedProcess[str] | None
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 3, 10**7, 10**10, 10**19, 10**400, 0.0, -1.5, 1e308, float("nan"), float("inf"), "",
    "x", "../../x", "many", "a" * 10_000, "\udcff", "<script>alert(1)</script>", "=1+1", [], [1], ["x"] * 3, {},
    {"x": 1}, [[[]]],
    "tiny", "vgg16", "linear", "lrbp", "matrix_sqrt(forward=newton_schulz, num_iters=10000000)", "l2(length=0)",
    "tensor_sketch(dim=10000000000)", "os.system", "float1", "bf16",
]  # fmt: skip
DAMAGE = (truncated, flipped, header_flipped, zeroed, doubled)


def forged(chosen: random.Random, content: Any) -> Any:
    """JSON with one value, somewhere in it, in the place of another; or without it."""
    content = json.loads(json.dumps(content))
    node, path = content, []
    while isinstance(node, dict | list) and node and (not path or chosen.random() < 0.8):
        key = chosen.choice(list(node)) if isinstance(node, dict) else chosen.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return chosen.choice(VALUES)
    parent, key = path[-1]
    if chosen.random() < 0.15:
        del parent[key]
    else:
        parent[key] = chosen.choice(VALUES)
    return content


def forge_model(chosen: random.Random, path: Path) -> None:
    """Another header over the same tensors, or other tensors under the same header; without a checksum."""
    with safe_open(path, framework="pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "crc32"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if chosen.random() < 0.2:
        name = chosen.choice(list(tensors))
        if chosen.random() < 0.5:
            del tensors[name]
        else:
            tensors[name] = tensors[name].reshape(-1)[: chosen.choice([0, 1, 2])].double()
    else:
        key = chosen.choice(["config", "config", "notes", "notes", *about])
        about[key] = _forged_text(chosen, about[key])
    save_file(tensors, path, metadata=about)


def _forged_text(chosen: random.Random, text: str) -> str:
    try:
        return json.dumps(forged(chosen, json.loads(text)))
    except ValueError:
        return str(chosen.choice(VALUES)).encode("utf-8", "replace").decode()


def models(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """Model files: damaged ones give the old results or none, forged ones give any result or none."""
    row = "damaged and forged model files"
    chosen = arena.random(row)
    model = _trained(arena, "model")
    calm = arena.run("predict", model, arena.pictures / "test", "--format", "json")
    assert calm is not None

    def prepare(own: random.Random, path: Path, is_forged: bool) -> None:
        path.parent.mkdir()
        shutil.copy(model / "model.safetensors", path)
        if is_forged:
            forge_model(own, path)
        else:
            path.write_bytes(own.choice(DAMAGE)(own, path.read_bytes()))

    def check(told: str, is_checked: bool, result: Ended, kind: str) -> None:
        if is_checked and kind == "succeeded" and result and result.stdout != calm.stdout:
            arena.changed(row, f"{told}: a damaged model gives other results")

    def cases() -> Iterator[Case]:
        for _ in range(num):
            seed, is_forged, evaluates = chosen.randrange(2**32), chosen.random() < 0.7, chosen.random() < 0.3
            place = arena.folder()
            path, told = place / "model.safetensors", f"seed {seed}, forged: {is_forged}"
            words = ["evaluate", path, arena.pictures] if evaluates else [
                "predict", path, arena.pictures / "test", "--format", "json"
            ]  # fmt: skip
            yield Case(
                row, words, place, partial(prepare, random.Random(seed), path, is_forged),
                partial(check, told, not is_forged and not evaluates), told=[*words, told],
            )  # fmt: skip

    return arena.batches(cases())


def _trained(arena: Arena, name: str) -> Path:
    out = arena.root / name
    if not out.exists():
        more = TUNED if name == "whole_tuned" else ()
        arena.expect("train", arena.pictures, *SMALL, *more, "--out", out)
    return out


def run_folders(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """Run folders with one damaged or forged file, with links, with pieces missing."""
    row = "damaged and forged run folders"
    chosen = arena.random(row)
    sources = {_trained(arena, "model"): (), _trained(arena, "whole_tuned"): TUNED}
    calm = {source: results_of(source) for source in sources}

    def prepare(own: random.Random, source: Path, place: Path, told: list[str]) -> None:
        shutil.copytree(source, place / "run")
        (place / "precious.txt").write_text("precious")
        told.append(_spoil_folder(own, place / "run", place / "precious.txt"))

    def check(source: Path, place: Path, told: list[str], is_again: bool, _result: Ended, kind: str) -> None:
        allowed = {"run", "precious.txt", "r.html", "r.md", "r.tex"}
        if (place / "precious.txt").read_text() != "precious" or {own.name for own in place.iterdir()} - allowed:
            arena.changed(row, f"{told}: wrote through a link")
        is_whole = kind == "succeeded" and is_again and "finished" not in told[-1]
        if is_whole and results_of(place / "run") != calm[source]:
            arena.changed(row, f"{told}: other results")
        if (place / "r.html").exists() and "<script>alert" in (place / "r.html").read_text(errors="replace"):
            arena.changed(row, f"{told}: a script in the report")

    def cases() -> Iterator[Case]:
        for _ in range(num):
            source, place, seed = chosen.choice(list(sources)), arena.folder(), chosen.randrange(2**32)
            run = place / "run"
            again: list[object] = ["train", arena.pictures, *SMALL, *sources[source], "--out", run]
            words = chosen.choice([
                again, again, ["evaluate", run, arena.pictures], ["report", run, "--out", place / "r.html"],
                ["compare", run], ["predict", run, arena.pictures / "test"], ["export", run, "--to", "torch"],
                ["explain", run, arena.pictures / "test" / "class_0" / "0.png"],
                ["invert", run, "--class", "class_0", "--steps", "1"],
            ])  # fmt: skip
            told = [f"seed {seed}", str(words)]
            yield Case(
                row, words, place, partial(prepare, random.Random(seed), source, place, told),
                partial(check, source, place, told, words is again), told=told,
            )  # fmt: skip

    return arena.batches(cases())


def _spoil_folder(own: random.Random, run: Path, precious: Path) -> str:
    """Change one file of a run folder; returns what was done."""
    files = [
        path for path in sorted(run.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and "evaluate_" not in path.parent.name
    ]  # fmt: skip  # earlier evaluations are left as they are by training
    if own.random() < 0.15:
        name = own.choice(["model.pt2", "invert_class_0.png", "explanations/explain_0.png", "explanations"])
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).symlink_to(precious.parent if name == "explanations" else precious)
        return f"{name} is a link"
    path = own.choice(files)
    name = path.relative_to(run)
    # What a finished fine-tuning has found is not computed again: its files are shown as they are.
    told = f"finished: {name}" if (run / "last.safetensors").exists() and (run / "metrics.json").exists() else str(name)
    if (run / "last.safetensors").exists() and own.random() < 0.6:
        (run / "metrics.json").unlink()  # as if it had been interrupted
        told = str(name)
    if not path.exists():
        return told
    kind = own.randrange(7)
    if kind == 6:
        path.unlink()
        os.mkfifo(path)
        return f"{told} is a pipe"
    if kind == 0:
        path.unlink()
        path.symlink_to(precious)
        return f"{told} is a link"
    if kind == 1:
        path.unlink()
        return f"{told} is missing"
    if kind == 2 and path.suffix == ".json":
        path.write_text(json.dumps(forged(own, json.loads(path.read_text()))))
        return f"{told} is forged, finished" if path.name == "descriptors.json" else f"{told} is forged"
    if kind == 3 and path.suffix in (".json", ".yaml", ".csv"):
        path.write_bytes(own.choice([b"", b"\xff\xfe\0", b"[]", b"{}", b"null", b"[" * 5000, b"a: &a [*a]", b"1"]))
        return f"{told} holds something else"
    if kind == 4:
        path.unlink()
        path.mkdir()
        return f"{told} is a folder"
    path.write_bytes(own.choice(DAMAGE)(own, path.read_bytes() or b"x"))
    # Lists and settings are text without a checksum; what they say is believed if it can be.
    return f"{told} is damaged" + (", finished" if path.suffix in (".json", ".yaml") else "")


def results_files(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """results.jsonl of `bcnn reproduce`, damaged and forged, as `bcnn report` reads it."""
    row = "damaged and forged results files"
    chosen = arena.random(row)
    made = arena.root / "made"
    if not made.exists():
        options = ["--data", f"own={arena.pictures}", "--networks", "tiny", "--weights", "none", "--size", "32"]
        arena.expect("reproduce", "table1_normalization", *options, "--no-finetune", "--out", made)
    lines = (made / "results.jsonl").read_text().splitlines()

    def prepare(own: random.Random, place: Path) -> None:
        place.mkdir()
        texts, at = list(lines), own.randrange(len(lines))
        if own.random() < 0.75:
            texts[at] = json.dumps(forged(own, json.loads(texts[at])))
            content = "\n".join(texts).encode("utf-8", "replace") + b"\n"
        else:
            content = own.choice(DAMAGE)(own, "\n".join(texts).encode() + b"\n")
        (place / "results.jsonl").write_bytes(content)

    def check(place: Path, _result: Ended, _kind: str) -> None:
        if (place / "r.html").exists() and "<script>alert" in (place / "r.html").read_text(errors="replace"):
            arena.changed(row, f"{place}: a script in the report")

    def cases() -> Iterator[Case]:
        for _ in range(num):
            seed, place = chosen.randrange(2**32), arena.folder()
            words = ["report", place, "--out", place / "r.html"]
            yield Case(
                row, words, place, partial(prepare, random.Random(seed), place), partial(check, place),
                told=[*words, f"seed {seed}"],
            )  # fmt: skip

    return arena.batches(cases())


NAMES = ["=1+1", "+x", "-x", "@x", "'x", '"', "a,b", "a;b", "a\nb", "a\rb", "a\tb", "<script>alert(1)</script>",
         "[red]x[/red]", "$x^2$", "\\frac", "%s", "{0}", "{{7*7}}", "&amp;", "#x", "|a|b|", "`x`", "*x*", "_x_", "🐦",
         "ü", "名", "\u202eabc", "\x1b[31mred", "\x7f", "\udcff", "a" * 200, " ", " x", "x ", ".x.", "CON", "~",
         "$HOME", "!!", "train"]  # fmt: skip


def class_names(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """Folders of classes with names that tables, pages and terminals might trip over."""
    row = "hostile names of classes and images"
    chosen = arena.random(row)

    def case(seed: int) -> None:
        own, place = random.Random(seed), arena.folder()
        names = own.sample(NAMES, 3)
        for number, name in enumerate(names):
            for split, count in (("train", 2), ("test", 1)):
                for i in range(count):
                    file = own.choice([f"{i}.png", f"={i}.png", f"a\r{i}.png", f"<b>{i}.png", f"-{i}.png"])
                    draw(place / "p" / split / name / file, seed % 1000 + i, stripes=2 + 4 * number)
        told = [names, seed]
        trained = arena.run("train", place / "p", *SMALL, "--out", place / "run", cwd=place)
        kind = arena.judge(row, [*told, "train"], trained)
        if kind == "succeeded":
            _check_table(arena, row, place / "run" / "predictions.csv", told)
            reported = arena.run("report", place / "run", "--out", place / "r.html", cwd=place)
            arena.judge(row, [*told, "report"], reported)
            if "<script>alert" in (place / "r.html").read_text(errors="replace"):
                arena.changed(row, f"{told}: a script in the report")
            predicted = arena.run(
                "predict", place / "run", place / "p" / "test", "--format", own.choice(["csv", "json", "table"])
            )
            arena.judge(row, [*told, "predict"], predicted)
        remove(place)

    for _ in range(num):
        yield partial(case, chosen.randrange(2**32))


def _check_table(arena: Arena, row: str, path: Path, told: object) -> None:
    """One line per image, as many cells in each, and no formula."""
    content = path.read_bytes()
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    formulas = [cell for cells in rows[1:] for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    if (
        len(content.decode().splitlines()) != 4
        or len(rows) != 4
        or len({len(cells) for cells in rows}) != 1
        or formulas
    ):
        arena.changed(row, f"{told}: {content!r}")
