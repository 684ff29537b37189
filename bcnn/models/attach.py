"""Second-order pooling in the place of a live network's own: of timm's networks, and of others that are built alike.

timm's contract is kept: a pooling layer is a module from the features of `forward_features` to vectors,
``forward_head(x, pre_logits=True)`` gives those vectors, `reset_classifier` makes a new classifier, `num_features` is
the number of channels before the pooling and `head_hidden_size` the length of the vectors after it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..errors import unknown_name
from ..pooling.head import Head, HeadConfig

Network = TypeVar("Network", bound=nn.Module)
POOL = "second_order"  # the name of the pooling module in a network with `forward_head`
LAYOUTS = ("NCHW", "NHWC", "NLC", "NCL")  # timm's names: N images, C channels, H x W or L locations


class SecondOrderPool(nn.Module):
    """A pooling layer as timm has them: from maps (B, C, H, W), (B, H, W, C) or tokens (B, N, C) to vectors (B, D).

    Args:
        preset: as in `bcnn.Head`.
        channels: C, of the features that come.
        layout: one of `LAYOUTS`; None: wherever there are `channels` of something.
        num_prefix_tokens: so many first tokens (class, registers) are left out.
        proj_dim: reduce the channels to so many first, by a 1 x 1 convolution that is learned.
        norm: what is done to the features of each location before; None: nothing.
        **options: those of `bcnn.Head`.

    Example:
        >>> SecondOrderPool("improved_bcnn", 8, num_prefix_tokens=1)(torch.rand(2, 17, 8)).shape
        torch.Size([2, 36])
    """

    def __init__(
        self,
        preset: str | HeadConfig,
        channels: int,
        *,
        layout: str | None = None,
        num_prefix_tokens: int = 0,
        proj_dim: int | None = None,
        norm: nn.Module | None = None,
        **options: Any,
    ):
        super().__init__()
        if layout is not None and layout not in LAYOUTS:
            raise unknown_name("attach", "layout", layout, LAYOUTS)
        self.channels, self.layout, self.num_prefix_tokens = channels, layout, num_prefix_tokens
        self.norm = norm if norm is not None else nn.Identity()
        self.projection: nn.Module = nn.Identity()
        if proj_dim is not None:
            self.projection = nn.Conv1d(channels, proj_dim, 1, bias=False)
        self.head = Head(preset, channels if proj_dim is None else proj_dim, **options)
        if self.head.config.layout != "maps" or self.head.pooling.num_inputs != 1:
            raise ValueError(
                "attach: expected a head for the maps of one network, which are brought into that form here, got "
                f"{self.head.config}."
            )
        assert self.head.out is not None
        self.num_features = self.head.out.length

    def forward(self, x: Tensor) -> Tensor:
        """The descriptors as vectors, shape (B, `num_features`)."""
        x = self.norm(x)
        layout = self.layout or self._layout_of(x)
        if layout == "NLC":
            x = x[:, self.num_prefix_tokens :].mT
        elif layout == "NHWC":
            x = x.movedim(-1, 1)
        vectors: Tensor = self.head(self.projection(x.flatten(2)))
        return vectors

    def _layout_of(self, x: Tensor) -> str:
        places = {3: ("NLC", "NCL"), 4: ("NCHW", "NHWC")}.get(x.ndim, ())
        for layout in places:
            if x.shape[layout.index("C")] == self.channels:
                return layout
        raise ValueError(
            f"attach: expected features of {self.channels} channels, shape (B, C, H, W), (B, H, W, C) or (B, N, C), "
            f"got {tuple(x.shape)}; pass channels=."
        )

    def extra_repr(self) -> str:
        """What comes in and goes out."""
        return f"channels={self.channels}, num_features={self.num_features}, prefix={self.num_prefix_tokens}"


def attach(
    model: Network,
    preset: str | HeadConfig = "improved_bcnn",
    num_classes: int | None = None,
    *,
    pool: str | None = None,
    classifier: str | None = None,
    channels: int | None = None,
    proj_dim: int | None = None,
    **options: Any,
) -> Network:
    """Put second-order pooling and a new classifier in the place of a live network's own, in place.

    Of a network with `forward_features` and `forward_head`, as all of timm's are, everything between the features and
    the scores is replaced: a transformer's tokens are pooled without class and register tokens, a norm that stood
    between pooling and classifier works at every location before the pooling. Of any other network the module `pool`
    is replaced, which has to be followed by a flattening or nothing, and then the `classifier`.

    Args:
        model: the network; it is changed, and returned.
        preset: how features become a descriptor, as in `bcnn.Head`.
        num_classes: of the new classifier; None: as many as before, 0: none, the vectors come out.
        pool: the name of the module to replace, such as "avgpool"; None: `forward_head` is.
        classifier: the name of the last layer, such as "fc"; None: what `get_classifier` gives, or the only module with
            such a name.
        channels: of the features; None: the network's `num_features`, or what its classifier took.
        proj_dim: reduce the channels to so many first; descriptors have about half the square of them.
        **options: those of `bcnn.Head`.

    Example:
        >>> net = nn.Sequential()
        >>> net.body, net.avgpool = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1)
        >>> net.flat, net.fc = nn.Flatten(), nn.Linear(8, 5)
        >>> attach(net, "bcnn", pool="avgpool", num_classes=4)(torch.rand(2, 3, 9, 9)).shape
        torch.Size([2, 4])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"attach: expected a network, got {type(model).__name__}.")
    whole = pool is None
    if whole and not all(hasattr(model, name) for name in ("forward_features", "forward_head")):
        raise ValueError(
            f"attach: expected a network with forward_features and forward_head, as timm's have them, got "
            f"{type(model).__name__}; name its pooling module, such as pool='avgpool'."
        )
    if pool is not None:
        _submodule(model, pool)
    place = _classifier_name(model, classifier)
    before = _submodule(model, place)
    number = _classes_of(model, before) if num_classes is None else num_classes
    if number < 0:
        raise ValueError(f"attach: expected num_classes >= 0, got {number}.")
    module = SecondOrderPool(
        preset,
        _channels_of(model, before, channels),
        num_prefix_tokens=int(getattr(model, "num_prefix_tokens", 0)),
        proj_dim=proj_dim,
        norm=_norm_after_pooling(model) if whole else None,
        **options,
    ).to(next((p.device for p in model.parameters()), torch.device("cpu")))
    if whole:
        _replace_head(model, module, place, number)
    else:
        assert pool is not None
        _set(model, pool, module)
        _set(model, place, _linear(module, number))
    return model


class _Attached:
    """What a network with `forward_head` gets: its class becomes one with these methods in front."""

    second_order: SecondOrderPool
    classifier_place: str
    num_classes: int
    head_hidden_size: int

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The descriptors if `pre_logits`, else the scores of the classes."""
        x = self.second_order(x)
        drop = getattr(self, "head_drop", None)
        if isinstance(drop, nn.Module):
            x = drop(x)
        elif rate := float(getattr(self, "drop_rate", 0.0) or 0.0):
            x = nn.functional.dropout(x, rate, self.training)  # type: ignore[attr-defined]
        scores: Tensor = x if pre_logits else self.get_classifier()(x)
        return scores

    def get_classifier(self) -> nn.Module:
        """The last layer."""
        return _submodule(self, self.classifier_place)  # type: ignore[arg-type]

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new last layer; `global_pool` may name another preset of bcnn."""
        if global_pool is not None:
            own = self.second_order
            kept = {"layout": own.layout, "num_prefix_tokens": own.num_prefix_tokens, "norm": own.norm}
            new = SecondOrderPool(global_pool, own.channels, **kept)  # type: ignore[arg-type]
            self.second_order = new.to(next((p.device for p in self.parameters()), "cpu"))  # type: ignore[attr-defined]
        self.num_classes = num_classes
        self.head_hidden_size = self.second_order.num_features
        _set(self, self.classifier_place, _linear(self.second_order, num_classes))  # type: ignore[arg-type]


def _replace_head(model: Any, module: SecondOrderPool, place: str, num_classes: int) -> None:
    """Everything between features and scores; what is not used any more loses its parameters."""
    if not isinstance(model, _Attached):
        kind = type(model)
        model.__class__ = type(kind.__name__, (_Attached, kind), {"__module__": kind.__module__})
    model.classifier_place = place
    for name in ("fc_norm", "head.norm", "head.pre_logits", "attn_pool"):
        if isinstance(_found(model, name), nn.Module):
            _set(model, name, nn.Identity())
    setattr(model, POOL, module)
    model.reset_classifier(num_classes)


def _norm_after_pooling(model: nn.Module) -> nn.Module | None:
    """The norm between a network's pooling and its classifier: after the former a part of it is kept."""
    if isinstance(model, _Attached):
        return model.second_order.norm
    for name in ("fc_norm", "head.norm"):
        norm = _found(model, name)
        if isinstance(norm, nn.Module) and any(True for _ in norm.parameters()):
            return norm
    return None


def _classifier_name(model: nn.Module, given: str | None) -> str:
    if given is not None:
        return given
    place = getattr(model, "classifier_place", None)
    if isinstance(place, str):
        return place
    own: Any = model
    layer = own.get_classifier() if hasattr(own, "get_classifier") else None
    names: list[str] = [name for name, module in model.named_modules() if name and module is layer]
    names = names or [name for name in ("fc", "classifier", "head", "head.fc") if _found(model, name) is not None]
    if not names:
        raise ValueError("attach: expected a network whose classifier is found, got none; name it, classifier='fc'.")
    return names[0]


def _channels_of(model: nn.Module, classifier: nn.Module, given: int | None) -> int:
    linear = next((m for m in classifier.modules() if isinstance(m, nn.Linear)), None)
    found = given or getattr(model, "num_features", None) or (linear.in_features if linear is not None else None)
    if not isinstance(found, int) or found < 1:
        raise ValueError(f"attach: expected to find the number of channels, got {found!r}; pass channels=.")
    return found


def _classes_of(model: nn.Module, classifier: nn.Module) -> int:
    number = getattr(model, "num_classes", None)
    if number is None:
        linear = [m for m in classifier.modules() if isinstance(m, nn.Linear)]
        number = linear[-1].out_features if linear else None
    if not isinstance(number, int):
        raise ValueError("attach: expected to find the number of classes, got none; pass num_classes=.")
    return number


def _linear(pool: SecondOrderPool, num_classes: int) -> nn.Module:
    if num_classes == 0:
        return nn.Identity()
    device = next((p.device for p in pool.parameters()), None)
    return nn.Linear(pool.num_features, num_classes, device=device)


def _found(model: Any, name: str) -> Any:
    for part in name.split("."):
        model = getattr(model, part, None)
    return model


def _submodule(model: nn.Module, name: str) -> nn.Module:
    found = _found(model, name)
    if not isinstance(found, nn.Module):
        names = ", ".join(own for own, _ in model.named_children())
        raise ValueError(f"attach: expected the name of a module, got {name!r}; there are: {names}.")
    return found


def _set(model: nn.Module, name: str, module: nn.Module) -> None:
    *above, last = name.split(".")
    setattr(_found(model, ".".join(above)) if above else model, last, module)
