"""One file per gradient rule; what each can do stands here, beside its name. "auto" is the first that fits."""

from ..contract import BackwardRule
from .identity import identity
from .loewner import loewner
from .lyapunov import lyapunov
from .svd import svd
from .svd_truncated import svd_truncated
from .unrolled import unrolled

BACKWARDS: dict[str, BackwardRule] = {
    "lyapunov": BackwardRule(lyapunov, functions=frozenset({"sqrt"}), second=True),  # Eq. (6)-(7)
    "loewner": BackwardRule(loewner),
    "svd": BackwardRule(svd, needs_basis=True),  # Eq. (2)-(4); exact on paper, not in floating point
    "svd_truncated": BackwardRule(svd_truncated, needs_basis=True, exact=False),
    "unrolled": BackwardRule(unrolled, needs_iteration=True),  # the paper's future work
    "identity": BackwardRule(identity, exact=False),  # "Faster" of Table 3, in one of two readings
}
