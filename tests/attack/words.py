"""Generated command lines and YAML files: what makes sense is done, what does not is refused in one line."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from .arena import SMALL, Arena, Case

NUMBERS = ["-1", "0", "1", "2", "3", "7", "1.5", "-0.0", "1e-320", "1e308", "nan", "inf", "-inf", "10000000000",
           "9" * 30, "0x10", "1_000", "", " ", "one", "\uff11", "1,2", "--", "+1"]  # fmt: skip
TEXTS = ["", " ", "none", "all", "auto", "~nouser", "~nouser/x", "..", "/", "nowhere", "/dev/null",
         "/proc/self/environ", "a" * 5000, "\udcff\udcfe", "🐦", "x\ny", "x\ry", "[red]x[/red]", "{0}", "%s%n", "=1+1",
         "@x", "'", '"', "a,b", ",", "a=b", "=", "(", ")", "x(", "x)", "x(y=)", "l2(length=1e308)", "l2(length=0)",
         "bilinear(eps=nan)",
         "bilinear(eps=-1)", "matrix_sqrt(num_iters=99999999)", "matrix_sqrt(forward=newton_schulz, num_iters=3)",
         "matrix_sqrt", "signed_sqrt", "l2", "tensor_sketch(dim=10000000000)", "tensor_sketch(dim=64)", "fisher(k=0)",
         "netvlad", "vlad(k=100000000)", "tiny", "tiny(cut=nowhere)", "tiny(proj_dim=10000000000)", "tiny,tiny", "bcnn",
         "improved_bcnn", "average", "o2p", "cbp(x=1)", "mpn_cov", "timm/nothing", "vgg16", "winograd", "torch", "cpu",
         "cuda", "cuda:99", "meta", "mps", "bf16", "float32", "hinge", "logistic", "svm", "textures",
         "textures,per_class=4", "textures,per_class=0", "textures,per_class=-1", "cub:nowhere", "cars:.", "aircraft:.",
         "dtd:.", "folder:.", "csv:nowhere.csv", "folder:,seed=x", "scorer=2", "median", "paper", "ours"]  # fmt: skip
ENDLESS = {
    "epochs",
    "steps",
    "boost",
    "repeats",
    "finetune",
    "nodes",
    "boost_size",
    "tuned_size",
}  # sensible numbers only
HEAVY = ("bench", "reproduce")  # their valid settings measure for minutes: wrong ones only


def leaves() -> dict[tuple[str, ...], list[Any]]:
    """Every command with its parameters."""
    import typer.main

    from bcnn.cli import app

    found: dict[tuple[str, ...], list[Any]] = {}

    def walk(command: Any, name: tuple[str, ...]) -> None:
        for own, inner in getattr(command, "commands", {}).items():
            walk(inner, (*name, own))
        if not hasattr(command, "commands"):
            found[name] = [parameter for parameter in command.params if parameter.name != "help"]

    walk(typer.main.get_command(app), ())
    return found


class Words:
    """One random command line after the other."""

    def __init__(self, arena: Arena, chosen: random.Random):
        self.arena, self.chosen, self.leaves = arena, chosen, leaves()
        root = arena.root
        self.paths = [str(path) for path in (
            arena.pictures, root / "model", root / "model" / "model.safetensors", root / "model" / "metrics.json",
            root / "tuned", root / "nowhere", root / "file.txt", root / "file.txt" / "x", arena.pictures / "test",
            arena.pictures / "test" / "class_0" / "0.png", root / "empty",
        )]  # fmt: skip
        (root / "file.txt").write_text("a text\n")
        (root / "empty").mkdir(exist_ok=True)
        (root / "empty" / "mine.txt").write_text("mine\n")

    def value(self, parameter: Any) -> str:
        kind = str(getattr(parameter, "type_descriptor", None) or parameter.type).lower()
        if parameter.name in ENDLESS:
            return self.chosen.choice(["1", "2", "0", "-1", "x", "", "1.5"])
        if "int" in kind or "float" in kind:
            return self.chosen.choice(NUMBERS)
        if parameter.name in (
            "spec",
            "run",
            "runs",
            "images",
            "out",
            "descriptors",
            "image",
            "path",
            "config",
            "reuse",
        ):
            return self.chosen.choice([*self.paths * 3, *TEXTS])
        return self.chosen.choice([*TEXTS, *NUMBERS])

    def line(self, cwd: Path) -> list[str]:
        chosen = self.chosen
        name = chosen.choice([*self.leaves, *[("train",)] * 6, ("predict",), ("evaluate",), ("extract",)])
        words = list(name)
        parameters = self.leaves[name]
        arguments = [own for own in parameters if own.param_type_name == "argument"]
        options = [own for own in parameters if own.param_type_name == "option"]
        for own in arguments:
            if chosen.random() < 0.95:
                usual = {"spec": str(self.arena.pictures), "run": str(self.arena.root / "model")}.get(own.name)
                words += [usual if usual and chosen.random() < 0.75 else self.value(own)]
        known = {word for own in options for word in own.opts}
        if "--backbone" in known and chosen.random() < 0.95:
            words += SMALL
        if "--out" in known and chosen.random() < 0.9:
            words += ["--out", str(cwd / chosen.choice(["out", "out.csv", "out.html", "out.png", "out.jsonl"]))]
        for own in chosen.sample(options, min(len(options), chosen.randint(0, 4))):
            words += self._option(own)
        if name == ("serve",):
            words += ["--host", "192.0.2.1"]  # where nobody can listen: a server that can has nothing to end it
        if name[0] in HEAVY:
            words += ["--plan"] if name == ("reproduce",) else [chosen.choice(["--no-such-option", "--out"])]
        if chosen.random() < 0.05:
            words.insert(
                chosen.randrange(len(words) + 1), chosen.choice(["--nonsense", "-x", "--", "-", "--debug", "--quiet"])
            )
        return [word.replace("\0", "") for word in words]

    def _option(self, own: Any) -> list[str]:
        word = self.chosen.choice([*own.opts, *own.secondary_opts])
        if getattr(own, "is_flag", False):
            return [word]
        return [word, self.value(own)] if self.chosen.random() < 0.97 else [word]

    def config(self) -> bytes:
        """A YAML file: options with any values, or no such thing."""
        chosen = self.chosen
        if chosen.random() < 0.2:
            return chosen.choice(BROKEN_YAML)
        options = [own for own in self.leaves["train",] if own.param_type_name == "option"]
        content: dict[Any, Any] = {"backbone": "tiny", "weights": "none", "size": 32, "preset": "bcnn"}
        for own in chosen.sample(options, chosen.randint(1, 4)):
            content[own.name] = self._yaml_value(own)
        if chosen.random() < 0.1:
            content[chosen.choice(["nonsense", "", 5, None, "help", "epochs "])] = 1
        return yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogateescape")

    def _yaml_value(self, own: Any) -> Any:
        if self.chosen.random() < 0.4 and isinstance(own.default, str | int | float):
            return own.default
        endless = own.name in ENDLESS
        plain = (
            [1, 0, -1, "x", 1.5] if endless else [*NUMBERS, *TEXTS, 0, 1, -5, 10**25, 1.5, float("nan"), float("inf")]
        )
        odd = [None, True, False, [], {}, [1, 2], ["x", None], {"a": 1}, [[[]]], "2020-01-01"]
        return self.chosen.choice([self.chosen.choice(plain), self.chosen.choice(odd)])


LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (i + 1, i + 1, b",".join([b"*%c" % i] * 9)) for i in range(ord("a"), ord("j"))
)
BROKEN_YAML = [
    b"", b"\xff\xfe", b"\0", b"- 1\n- 2\n", b"just a text", b"a: [", b"a: 'x", b"\tx: 1", b"a: 1\na: 2\n",
    b"!!python/object/apply:os.system [touch ran]", b"backbone: !!python/name:os.system", b"? [a]\n: 1\n", b"&a [*a]",
    b"&a {x: *a}", b"[" * 3000, b"{a: " * 800, LAUGHS, LAUGHS + b"size: *i\n", b"size: 2020-99-99\n",
    b"preset: " + b"9" * 100_000, b"size: 0o9\n", b"---\na: 1\n---\nb: 2\n", b"%YAML 9.9\n---\na: 1\n",
    b"a: !!binary x\n", b"a: !!timestamp x\n", "\ufeffsize: 32\n".encode(),
]  # fmt: skip


def attack(arena: Arena, num: int) -> Iterator[Callable[[], None]]:
    """Half of them command lines, half of them YAML files."""
    for name, more in (("model", ()), ("tuned", ("--finetune", "--epochs", "1"))):
        if not (arena.root / name).exists():
            arena.expect("train", arena.pictures, *SMALL, *more, "--out", arena.root / name)
    return arena.batches(_cases(arena, num))


def _cases(arena: Arena, num: int) -> Iterator[Case]:
    words = Words(arena, arena.random("words"))
    kept = [arena.root / "file.txt", arena.root / "empty" / "mine.txt", arena.root / "model" / "model.safetensors"]
    before = {path: path.read_bytes() for path in (*kept, *sorted(arena.pictures.rglob("*.png")))}
    for number in range(num):
        cwd = arena.folder()
        if number % 2:
            content = words.config()
            config = cwd / "options.yaml"
            line = ["train", str(arena.pictures), "--config", str(config), "--out", str(cwd / "out")]
            yield Case(
                "generated YAML files", line, cwd, partial(_make, cwd, content),
                partial(_check, arena, "generated YAML files", cwd, before), told=content[:400],
            )  # fmt: skip
        else:
            yield Case(
                "generated command lines", words.line(cwd), cwd, cwd.mkdir,
                partial(_check, arena, "generated command lines", cwd, before),
            )  # fmt: skip


def _make(cwd: Path, content: bytes) -> None:
    cwd.mkdir()
    (cwd / "options.yaml").write_bytes(content)


def _check(arena: Arena, row: str, cwd: Path, before: dict[Path, bytes], _result: object, _kind: str) -> None:
    """Files of others and finished results are as they were, and nothing was run."""
    broken = [path for path, content in before.items() if not path.exists() or path.read_bytes() != content]
    if broken:
        arena.changed(row, f"{cwd} changed {broken[:3]}")
        for path in broken:
            path.write_bytes(before[path])
    if list(cwd.rglob("ran")):
        arena.changed(row, f"{cwd} ran a program")
