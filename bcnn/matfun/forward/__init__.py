"""One file per forward algorithm; what each can do stands here, beside its name. "auto" is the first that fits."""

from ...linalg.scaling import SCALES
from ..contract import ForwardMethod
from .denman_beavers import denman_beavers
from .eigen import PRECISIONS, eigen
from .inverse_scaling_squaring import inverse_scaling_squaring
from .minimax import minimax
from .newton_schulz import newton_schulz
from .svd import svd

_SQRT, _LOG = frozenset({"sqrt"}), frozenset({"log"})
_PRECISION, _SCALE = {"precision": PRECISIONS}, {"scale": tuple(SCALES)}

FORWARDS: dict[str, ForwardMethod] = {
    "eigen": ForwardMethod(eigen, basis=True, choices=_PRECISION),
    "svd": ForwardMethod(svd, basis=True, choices=_PRECISION),  # the paper's
    "minimax": ForwardMethod(minimax, functions=_SQRT, for_accelerators=True, choices=_SCALE),
    "newton_schulz": ForwardMethod(newton_schulz, functions=_SQRT, choices=_SCALE),  # Eq. (9)
    "denman_beavers": ForwardMethod(denman_beavers, functions=_SQRT, needs_definite=True),  # Eq. (8)
    "inverse_scaling_squaring": ForwardMethod(  # end of Sec. 2.2
        inverse_scaling_squaring, functions=_LOG, needs_definite=True, choices=_SCALE
    ),
}
