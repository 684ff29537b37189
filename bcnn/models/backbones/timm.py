"""Every timm network, convolutional or transformer, by name: ``timm/resnet50``; needs ``pip install bcnn[timm]``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...data.preprocess import Preprocessing
from ...errors import unknown_name

PREFIX = "timm/"


class TimmBackbone(nn.Module):
    """A timm network from images (B, 3, H, W) to feature maps (B, `num_channels`, H', W').

    A transformer's tokens come as maps, class and register tokens left out.

    Args:
        name: with the prefix, ``timm/vit_small_patch16_224``.
        cut: a layer of timm's `feature_info` (an error lists them), or its number; None for the last.
        pretrained: timm's own weights, which it downloads.
        image_size: for transformers whose grid is fixed when they are built; None for the one they were trained with.
    """

    def __init__(self, name: str, *, cut: str | None = None, pretrained: bool = False, image_size: int | None = None):
        super().__init__()
        timm = _import_timm()
        short = name.removeprefix(PREFIX)
        if not timm.is_model(short):
            raise unknown_name("timm", "model", short, timm.list_models())
        size = {} if image_size is None or not _takes_size(timm, short) else {"img_size": image_size}
        layers = _layers_of(timm, short, size)
        index = len(layers) - 1 if cut is None else _index_of(name, cut, layers)
        self.network = timm.create_model(short, features_only=True, out_indices=[index], pretrained=pretrained, **size)
        self.name, self.cut = name, layers[index]
        self.frozen_until: str | None = None
        self._frozen: list[nn.Module] = []
        self.num_channels = int(self.network.feature_info.channels()[-1])

    def forward(self, images: Tensor) -> Tensor:
        """Return the features at the cut."""
        features: Tensor = self.network(images)[-1]
        if features.shape[1] != self.num_channels:  # some networks (Swin) keep channels last
            features = features.movedim(-1, 1)
        return features

    def checkpoint_activations(self, on: bool = True) -> TimmBackbone:
        """Save memory in training, in the way that timm does it for this network."""
        switch = getattr(self._root, "set_grad_checkpointing", None)
        if switch is None:
            raise ValueError(f"{self.name}: expected a network whose activations timm can checkpoint, got one without.")
        switch(on)
        return self

    def freeze_until(self, layer: str | None) -> TimmBackbone:
        """Let the layers up to and including `layer` stay as they are: no gradients, batch statistics fixed.

        In the order in which timm registers them, which is that of the computation; None frees all of them.
        """
        self._frozen = [] if layer is None else self._modules_until(layer)
        self.frozen_until = layer
        self.network.requires_grad_(True)
        for module in self._frozen:
            module.requires_grad_(False)
        if layer is not None:
            for parameter in self._root.parameters(recurse=False):  # embeddings of position and class come first
                parameter.requires_grad_(False)
        return self.train(self.training)

    def train(self, mode: bool = True) -> TimmBackbone:
        """As `nn.Module.train`, but frozen layers stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    @property
    def _root(self) -> nn.Module:
        inner = getattr(self.network, "model", None)  # a transformer comes wrapped
        return inner if isinstance(inner, nn.Module) else self.network

    def _modules_until(self, layer: str) -> list[nn.Module]:
        """What lies before a layer, and the layer; networks without branches are flattened by timm, a_0 for a.0."""
        names = [name for name, _ in self._root.named_modules() if name]
        target = layer if layer in names else layer.replace(".", "_")
        if target not in names:
            raise unknown_name(self.name, "layer to freeze until", layer, [n for n in names if n.count(".") < 2])
        stop = names.index(target)
        inside = [name for name in names[: stop + 1] if not target.startswith(f"{name}.")]  # a parent lies around it
        return [self._root.get_submodule(name) for name in inside]

    def preprocessing(self) -> Preprocessing:
        """The preprocessing that the weights expect, according to timm."""
        about: dict[str, Any] = self.network.pretrained_cfg
        size = int(about["input_size"][-1])
        resized = round(size / float(about.get("crop_pct") or 1.0))
        return Preprocessing(
            size=size,
            resize="shorter",
            resize_to=max(resized, size),
            mean=tuple(about["mean"]),
            std=tuple(about["std"]),
            interpolation=about["interpolation"] if about["interpolation"] in ("bilinear", "bicubic") else "bicubic",
        )

    def extra_repr(self) -> str:
        """Show where the network is cut and which layers are frozen."""
        return f"{self.name}, cut={self.cut!r}, num_channels={self.num_channels}, frozen_until={self.frozen_until!r}"


def _layers_of(timm: Any, short: str, size: dict[str, int]) -> list[str]:
    """The names of the layers that can be cut at, from a network without values where it allows that."""
    try:
        with torch.device("meta"):
            whole = timm.create_model(short, pretrained=False, **size)
    except (NotImplementedError, RuntimeError):  # some compute while they are built
        whole = timm.create_model(short, pretrained=False, **size)
    return [str(info["module"]) for info in whole.feature_info]


def _index_of(name: str, cut: str, layers: list[str]) -> int:
    if cut.lstrip("-").isdigit() and -len(layers) <= int(cut) < len(layers):
        return int(cut) % len(layers)
    if cut not in layers:
        raise unknown_name(name, "layer", cut, layers)
    return layers.index(cut)


def _takes_size(timm: Any, short: str) -> bool:
    """Whether the grid is fixed at construction: transformers say so in their configuration."""
    about = timm.get_pretrained_cfg(short)
    return bool(about is not None and about.fixed_input_size)


def _import_timm() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # a torchvision that does not match torch raises RuntimeError
        raise ImportError(
            f"backbone 'timm/...': expected timm and a torchvision that fits torch {torch.__version__}, got "
            f"{type(error).__name__}: {error}; run: pip install 'bcnn[timm]'."
        ) from error
    return timm
