"""The model card of a run: a README that says what it is, how good it is, and how to use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..data.contract import shown
from ..metrics import Measured, Notes, RunMetrics
from ..models.weights import WEIGHTS

MOST_CLASSES = 300  # that are listed by name


def card(repo: str, notes: Notes, branches: list[Mapping[str, Any]], metrics: RunMetrics | None, licence: str) -> str:
    """The text of README.md.

    Args:
        repo: user/name, as it will be pulled.
        notes: of the model's file.
        branches: its networks, as the configuration in the file has them.
        metrics: of the run, if they are there.
        licence: of the model, an identifier such as "mit"; "other" if it is not known.
    """
    name = repo.split("/")[-1]
    parts = [_front_matter(name, licence, notes, metrics), f"# {_code(name)}", _about(notes, branches, metrics)]
    if metrics is not None and metrics.test is not None:
        parts += ["## How good it is", _accuracy(metrics.test)]
    parts += ["## How to use it", _usage(repo, name), "## Classes", _classes(notes.classes)]
    parts += ["## Weights and licence", _weights(branches, licence)]
    return "\n\n".join(parts) + "\n"


def _front_matter(name: str, licence: str, notes: Notes, metrics: RunMetrics | None) -> str:
    import yaml

    content: dict[str, Any] = {
        "license": licence,
        "library_name": "bcnn",
        "pipeline_tag": "image-classification",
        "tags": ["bcnn", "bilinear-pooling", "second-order-pooling", "fine-grained-recognition"],
    }
    if metrics is not None and metrics.test is not None:
        dataset = {"name": notes.dataset, "type": notes.dataset.split(",")[0]}
        result = {
            "task": {"type": "image-classification"},
            "dataset": dataset,
            "metrics": [{"type": "accuracy", "value": round(metrics.test.accuracy, 4)}],
        }
        content["model-index"] = [{"name": name, "results": [result]}]
    return f"---\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()}\n---"


def _about(notes: Notes, branches: list[Mapping[str, Any]], metrics: RunMetrics | None) -> str:
    networks = " and ".join(str(branch.get("backbone")) for branch in branches)
    how = f" The preset is {_code(metrics.preset)}, at {metrics.image_size} pixels." if metrics is not None else ""
    return (
        f"A classifier of images with {len(notes.classes)} classes: second-order (bilinear) pooling of the features of "
        f"{networks}, made by `bcnn train`.{how}"
    )


def _accuracy(test: Measured) -> str:
    low, high = test.interval95
    lines = [
        f"- accuracy {100 * test.accuracy:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f} %, on "
        f"{test.num_test} test images that were not trained on",
        f"- mean over the classes {100 * test.mean_class_accuracy:.1f} %",
    ]
    if test.top5_accuracy is not None:
        lines.append(f"- the right class among the first five: {100 * test.top5_accuracy:.1f} %")
    if test.calibration_error is not None:
        lines.append(f"- expected calibration error of the probabilities: {100 * test.calibration_error:.1f} %")
    return "\n".join(lines)


def _usage(repo: str, name: str) -> str:
    return (
        f"```\npip install 'bcnn[hub]'\nbcnn pull {repo} --out {name}\nbcnn predict {name} photograph.jpg\n```\n\n"
        f'```python\nimport bcnn\n\nmodel = bcnn.load("{name}/model.safetensors")\n'
        f'classes = bcnn.read_notes("{name}/model.safetensors")["classes"]\n```'
    )


def _classes(classes: tuple[str, ...]) -> str:
    listed = ", ".join(_code(name) for name in classes[:MOST_CLASSES])
    rest = f" and {len(classes) - MOST_CLASSES} more, in the header of the file" if len(classes) > MOST_CLASSES else ""
    return listed + rest + "."


def _weights(branches: list[Mapping[str, Any]], licence: str) -> str:
    lines = []
    for branch in branches:
        start = branch.get("weights")
        about = WEIGHTS[start].about if start in WEIGHTS else "random, or from a file of the author's own"
        lines.append(
            f"- {branch.get('backbone')} started from: {_code(str(start)) if start else 'none named'} ({about})"
        )
    said = (
        "The author has not said under which licence this model may be used: ask before you do."
        if licence == "other"
        else f"The author gives the licence of this model as {_code(licence)}."
    )
    return "\n".join([*lines, "", said + " The licence of the weights above, and of the images, still counts."])


def _code(text: str) -> str:
    """As code, on one line, whatever is in it."""
    plain = shown(text).replace("`", "'")
    return f"`{plain}`"


def as_json(content: Any) -> str:
    """Indented JSON with a line end."""
    return json.dumps(content, indent=1) + "\n"
