"""The authors' released PyTorch checkpoints (cvl-umass/bilinear-cnn, ``*.pth.tar``) as networks of ours.

Their keys are ``module.feature_extractors.feature_extractors.0.model.<i>.*`` for VGG-D without its last maximum,
``module.fc.*`` for the classifier and, where the network takes a matrix square root, ``module.m_sqrt.I``. Their
network, as their README configures it: no ridge, five Newton-Schulz steps (``--matrix_sqrt_iter 5``), the signed square
root shifted by 1e-5, l2, and the full matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.preprocess import Preprocessing
from ..pooling.head import HeadConfig, make_config
from .bcnn import BCNN, ModelConfig
from .branch import BranchConfig
from .build import skeleton
from .weights.formats import in_order, load_state

_FEATURES, _CLASSIFIER, _ROOT = "feature_extractors.", "fc.", "m_sqrt."

_SQUARE_ROOT = (
    "matrix_sqrt(forward='newton_schulz', num_iters={n}, backward='lyapunov', solver='iterative', solver_iters={n})"
)

# Their preprocessing by dataset, told by the number of classes: birds keep their shape, aircraft are cut from 512.
_BIRDS = Preprocessing(resize="shorter")
_BY_CLASSES = {196: Preprocessing(), 100: Preprocessing(resize_to=512)}


def is_authors(state: Any) -> bool:
    """Whether a loaded checkpoint was written by the authors' code."""
    names = _states(state)
    return any(name.startswith(_FEATURES) for name in names) and any(name.startswith(_CLASSIFIER) for name in names)


def is_checkpoint(path: Path) -> bool:
    """Whether a file is a checkpoint of the authors' code."""
    try:
        return is_authors(load_state(path))
    except ValueError:
        return False


def import_checkpoint(path: Path, *, sqrt_iters: int = 5) -> BCNN:
    """A checkpoint of the authors as a network that gives the same scores, read with ``weights_only=True``.

    VGG-D alone, which is what they released with these keys; a bottleneck or a projection is refused. A file does not
    tell everything: `assumptions` says what was taken for granted.

    Args:
        path: the ``.pth.tar`` file.
        sqrt_iters: their ``--matrix_sqrt_iter``, where the file has a matrix square root at all.
    """
    if sqrt_iters < 1:
        raise ValueError(f"import_checkpoint: expected `sqrt_iters` >= 1, got {sqrt_iters}.")
    state = _states(load_state(path))
    if not is_authors(state):
        raise ValueError(
            f"{path}: expected keys such as module.feature_extractors...., module.fc.weight, got "
            f"{', '.join(list(state)[:3])}; is it a checkpoint of cvl-umass/bilinear-cnn?"
        )
    features = {key: value for key, value in state.items() if key.startswith(_FEATURES)}
    classifier = {key: value for key, value in state.items() if key.startswith(_CLASSIFIER)}
    if set(classifier) != {"fc.weight", "fc.bias"}:
        raise ValueError(f"{path}: expected one linear classifier, got {', '.join(classifier)}; no bottleneck is read.")
    tensors = in_order(path, features, "vgg16")
    if len(features) != len(tensors):
        raise ValueError(f"{path}: expected the {len(tensors)} tensors of VGG-D, got {len(features)}.")
    weight, bias = classifier["fc.weight"], classifier["fc.bias"]
    if weight.shape[1] != 512 * 512:
        raise ValueError(f"{path}: expected a classifier of 512 x 512 features, got {weight.shape[1]}.")
    num_classes = len(weight)
    root = [_SQUARE_ROOT.format(n=sqrt_iters)] if any(key.startswith(_ROOT) for key in state) else []
    head = HeadConfig("bilinear(eps=0)", (*root, "shifted_sqrt(delta=1e-05)", "l2(length=1e-12)"), triangle=False)
    preprocessing = _BY_CLASSES.get(num_classes, _BIRDS)
    branch = BranchConfig("vgg16", "relu5_3", weights=path.name, preprocessing=preprocessing)
    model = skeleton(ModelConfig((branch,), make_config(head), num_classes=num_classes))
    model.backbone.get_submodule("layers").load_state_dict(tensors)
    model.scorer.start_from(weight, bias)  # type: ignore[union-attr, operator]
    return model.eval()


def assumptions(model: BCNN) -> str:
    """What the file of an imported network did not say."""
    prepared = model.config.preprocessing
    cut = "" if prepared.resize_to is None else f", cut from {prepared.resize_to}"
    return (
        "assumed: plain bilinear pooling (a democratic one has the same keys), "
        f"{', '.join(model.config.head.normalize)}; images of {prepared.size} pixels ({prepared.resize}{cut})"
    )


def _states(content: Any) -> dict[str, Tensor]:
    """The tensors, without the prefix of a parallel wrapper."""
    state = content if isinstance(content, Mapping) else {}
    return {str(key).removeprefix("module."): value for key, value in state.items() if isinstance(value, torch.Tensor)}
