"""A run on the Hugging Face Hub and back: what is sent says nothing of the sender, what comes is checked.

Sent are model.safetensors, metrics.json, README.md and checksums.json, nothing else: no images, no descriptors, no
names of images, no paths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import DATASETS
from ..data.contract import shown
from ..files import amount, read_tensors, read_text, write_tensors, written_whole
from ..metrics import METRICS, MODEL, Notes, RunMetrics, read, read_as
from ..models.files import load, read_notes
from ..models.weights.fetch import sha256_of
from .card import as_json, card
from .place import held
from .predict import model_of

CARD, SUMS = "README.md", "checksums.json"
MOST_BYTES = {MODEL: 8 * 2**30, METRICS: 64 * 2**20, CARD: 8 * 2**20, SUMS: 2**20}  # of a file that is pulled
REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
PATH = "(a path)"


@dataclass(frozen=True)
class Pulled:
    """A run folder that was fetched."""

    folder: Path
    revision: str
    num_classes: int
    accuracy: float | None


def push(run: Path, repo: str, *, private: bool = False, licence: str = "other") -> str:
    """Send a run to the Hub; returns the address of the model there.

    Args:
        run: a run folder, or a model's file.
        repo: user/name; made if it is not there.
        private: whether nobody else sees it, if it is made now.
        licence: what the card says, an identifier of the Hub such as "mit".
    """
    hub = _hub()
    _check_repo("push", repo)
    with tempfile.TemporaryDirectory(prefix="bcnn-push-") as temporary:
        folder = Path(temporary)
        prepare(run, repo, folder, licence=licence)
        with _in_words("push", repo):
            api = hub.HfApi(endpoint=_endpoint(), library_name="bcnn")
            api.create_repo(repo, private=private, exist_ok=True)
            names = sorted(path.name for path in folder.iterdir())
            operations = [hub.CommitOperationAdd(name, str(folder / name)) for name in names]
            api.create_commit(repo, operations, commit_message="A run of bcnn")
            return f"{api.endpoint}/{repo}"


def prepare(run: Path, repo: str, folder: Path, *, licence: str = "other") -> None:
    """Write what is sent of a run to a folder: the model without paths, metrics without names of images, the card."""
    source = model_of(run)
    content = read_notes(source)
    if "classes" not in content:
        raise ValueError(f"push: expected a run of bcnn train, with class names, got {shown(str(source))} without.")
    tensors, about = read_tensors(source)
    config = without_paths(json.loads(about["config"]))
    notes = {**content, "config": without_paths(content.get("config", {})), "dataset": _dataset(content)}
    about = {**about, "config": json.dumps(config), "notes": json.dumps(notes)}
    write_tensors(folder / MODEL, tensors, about, who="push", remedy="Make room.")
    metrics = _metrics_beside(source)
    if metrics is not None:
        (folder / METRICS).write_text(as_json(metrics.to_json()), encoding="utf-8")
    members = config.get("members", [config])
    branches = [branch for member in members for branch in member.get("branches", [member])]
    text = card(repo, read_as(Notes, notes), branches, metrics, licence)
    (folder / CARD).write_text(text, encoding="utf-8")
    sums = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    (folder / SUMS).write_text(as_json(sums), encoding="utf-8")
    _check_says_nothing(folder, about, run)


def pull(repo: str, out: Path | None = None, *, revision: str | None = None) -> Pulled:
    """Fetch a run from the Hub into a run folder, which `bcnn predict` takes.

    Args:
        repo: user/name.
        out: the folder, new or empty; None: the name, in runs/.
        revision: a branch, a tag or a commit; None: the newest.
    """
    hub = _hub()
    _check_repo("pull", repo)
    place = out or Path("runs") / repo.split("/")[1]
    if (place / MODEL).exists():
        raise ValueError(
            f"pull: expected a new folder, got {shown(str(place))} with a model in it; choose another --out."
        )
    with tempfile.TemporaryDirectory(prefix="bcnn-pull-") as temporary:
        with _in_words("pull", repo):
            api = hub.HfApi(endpoint=_endpoint(), library_name="bcnn")
            info = api.model_info(repo, revision=revision, files_metadata=True)
            wanted = _wanted(repo, info)
            for name in wanted:
                api.hf_hub_download(repo, name, revision=info.sha, local_dir=temporary)
        folder = Path(temporary)
        for name, sha256 in wanted.items():
            _check_file(repo, folder / name, sha256)
        _check_sums(repo, folder, wanted)
        notes = _check_content(repo, folder)
        with held(place, "pull"):
            for name in wanted:
                with written_whole(place / name) as target:
                    shutil.copyfile(folder / name, target)
    return Pulled(place, str(info.sha), len(notes.classes), notes.accuracy)


# --- what is sent -----------------------------------------------------------------------------------------------------


def without_paths(value: Any) -> Any:
    """Plain data without paths, and without the name of the dataset's folder; names of networks of timm stay."""
    if isinstance(value, Mapping):
        kept = {name: without_paths(one) for name, one in value.items() if name != "descriptors"}
        if "spec" in kept:
            kept["spec"] = _kind_of(str(value["spec"]))
        return kept
    if isinstance(value, list | tuple):
        return [without_paths(one) for one in value]
    if isinstance(value, str) and re.search(r"[/\\]|^~|\.safetensors$", value) and not value.startswith("timm/"):
        return PATH
    return value


def _kind_of(spec: str) -> str:
    """What kind of dataset it is, without where it is."""
    start = re.split("[:,]", spec)[0]
    return start if start in DATASETS else "folder"


def _dataset(notes: Mapping[str, Any]) -> str:
    name = str(notes.get("dataset", ""))
    return PATH if re.search(r"[/\\~]", name) else name


def _metrics_beside(source: Path) -> RunMetrics | None:
    """The metrics of the run, without names of images and paths."""
    path = source.parent / METRICS
    if not path.is_file():
        return None
    content = json.loads(read_text(path))
    content |= {"broken": {}, "config": without_paths(content.get("config", {})), "dataset": _dataset(content)}
    if content.get("finetune"):
        content["finetune"] = {**content["finetune"], "nonfinite": []}
    try:
        return RunMetrics.from_json(content)
    except (AttributeError, KeyError, TypeError, ValueError):
        read(path)  # says what is wrong with it
        raise


def _check_says_nothing(folder: Path, about: Mapping[str, str], run: Path) -> None:
    """Refuse to send a text with a folder of this machine in it."""
    texts = [
        *about.values(),
        *((folder / name).read_text("utf-8") for name in (METRICS, CARD) if (folder / name).exists()),
    ]
    for place in {str(Path.home()), str(Path.cwd()), str(run.resolve().parent)} - {"/"}:
        if any(place in text or json.dumps(place)[1:-1] in text for text in texts):
            raise ValueError(
                f"push: expected nothing about this machine in what is sent, got {shown(place)} in it, perhaps in the "
                "name of a class; rename that, and train again."
            )


# --- what comes -------------------------------------------------------------------------------------------------------


def _wanted(repo: str, info: Any) -> dict[str, str | None]:
    """The files of ours that are there, with their checksum where the Hub has one; all other files stay there."""
    found: dict[str, str | None] = {}
    for entry in info.siblings or ():
        if entry.rfilename not in MOST_BYTES:
            continue
        most = MOST_BYTES[entry.rfilename]
        size = entry.size if entry.size is not None else getattr(entry.lfs, "size", None)
        if size is None or not 0 <= size <= most:
            got = "none" if size is None else amount(size)
            raise ValueError(f"pull: expected {entry.rfilename} of {repo} to have at most {amount(most)}, got {got}.")
        found[entry.rfilename] = getattr(entry.lfs, "sha256", None)
    if MODEL not in found:
        raise ValueError(
            f"pull: expected a model of bcnn push, with a {MODEL}, got {repo} without; models of other libraries "
            "cannot be read."
        )
    return found


def _check_file(repo: str, path: Path, sha256: str | None) -> None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES[path.name]:
        raise ValueError(f"pull: expected {path.name} of {repo} to be a file of a fitting size, got something else.")
    if sha256 is not None and sha256_of(path) != sha256:
        raise ValueError(f"pull: expected {path.name} of {repo} with the checksum that the Hub names, got another.")


def _check_sums(repo: str, folder: Path, names: Mapping[str, Any]) -> None:
    """Compare with the checksums that were sent along."""
    if SUMS not in names:
        return
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        wrong = [name for name in names if name not in (SUMS, CARD) and sums.get(name) != sha256_of(folder / name)]
    except (AttributeError, ValueError) as error:
        raise ValueError(f"pull: expected checksums as JSON in {SUMS} of {repo}, got: {error}.") from None
    if wrong:
        raise ValueError(f"pull: expected {wrong[0]} of {repo} as it was pushed, got other content; it is damaged.")


def _check_content(repo: str, folder: Path) -> Notes:
    """Whether it is what `bcnn predict` takes: a network that can be built, with a name for each of its scores."""
    try:
        notes = read_as(Notes, read_notes(folder / MODEL))
        model = load(folder / MODEL)
        if (folder / METRICS).exists():
            read(folder / METRICS)
    except (KeyError, OSError, TypeError, ValueError) as error:
        said = str(error).replace(str(folder), repo).rstrip(".")
        raise ValueError(f"pull: expected a run of bcnn in {repo}, got: {said}.") from None
    if model.config.num_classes != len(notes.classes):
        raise ValueError(f"pull: expected a class name per score in {repo}, got {len(notes.classes)}.")
    return notes


# --- the Hub ----------------------------------------------------------------------------------------------------------


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"push, pull: expected the package huggingface_hub, got: {error}; run: pip install 'bcnn[hub]'."
        ) from None
    return huggingface_hub


def _endpoint() -> str | None:
    """The server that the environment names; None: the Hub's own."""
    return os.environ.get("HF_ENDPOINT") or None


def _check_repo(who: str, repo: str) -> None:
    if not REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise ValueError(f"{who}: expected a model's name as user/name, got {shown(repo)!r}.")


@contextmanager
def _in_words(who: str, repo: str) -> Iterator[None]:
    """What the Hub or the way to it says, in one line and with a remedy."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:  # of the Hub's client, which takes the kinds of whatever library it speaks HTTP with
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedy = {
            401: "log in with `hf auth login`, or set HF_TOKEN",
            403: "your token needs the right to write there",
            404: "look at the spelling; a private model needs HF_TOKEN",
        }.get(status or 0, "look at the connection, and at HF_ENDPOINT if it is set")
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise OSError(f"{who}: expected the Hub to answer for {repo}, got: {first.rstrip('.')}; {remedy}.") from None
