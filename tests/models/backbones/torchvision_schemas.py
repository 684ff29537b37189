"""Makes a torchvision whose compiled operators do not load importable: timm needs its Python part alone."""

import torch

_KEPT = []  # a Library that is collected takes its operators with it


def declare() -> None:
    """Declare the operators that `import torchvision` registers derivatives for."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
