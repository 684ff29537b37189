"""One file per forward algorithm; what each can do stands here, beside its name. "auto" is the first that fits."""

from ..contract import ForwardMethod
from .denman_beavers import denman_beavers
from .eigen import eigen
from .inverse_scaling_squaring import check_range, inverse_scaling_squaring
from .minimax import minimax
from .newton_schulz import newton_schulz
from .svd import svd

_SQRT, _LOG = frozenset({"sqrt"}), frozenset({"log"})

FORWARDS: dict[str, ForwardMethod] = {
    "eigen": ForwardMethod(eigen, basis=True),
    "svd": ForwardMethod(svd, basis=True),  # the paper's
    "minimax": ForwardMethod(minimax, functions=_SQRT, for_accelerators=True, second_in_float32=False),
    "newton_schulz": ForwardMethod(newton_schulz, functions=_SQRT),  # Eq. (9)
    "denman_beavers": ForwardMethod(denman_beavers, functions=_SQRT, needs_definite=True),  # Eq. (8)
    "inverse_scaling_squaring": ForwardMethod(  # end of Sec. 2.2
        inverse_scaling_squaring, functions=_LOG, needs_definite=True, second_in_float32=False, check=check_range
    ),
}
