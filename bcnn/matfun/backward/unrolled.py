r"""The gradient of an iteration itself, step by step: the paper's future work.

Legend: Z = h(A, s) the result of the iteration on A scaled by s; G = grad_Z = dL/dZ; W = dL/dA at fixed s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.scaling import scale_gradient, scale_of
from ..contract import Algorithm, ForwardState, SpectralFunction


def unrolled(
    state: ForwardState,
    grad_Z: Tensor,
    f: SpectralFunction,
    *,
    store: bool = True,
    algorithm: Algorithm | None = None,
    scaled_by: str | Tensor | None = None,
) -> Tensor:
    r"""dL/dA of the iteration that was run, not of the function it approximates.

    With ``store=True`` autograd records every step, as peers do, and this function is not called. With ``store=False``
    nothing but A and Z is kept: with fixed coefficients the iteration is a polynomial (or rational function) of the
    symmetric matrix A, whose derivative is self-adjoint, so the gradient equals the directional
    derivative along G and is recomputed forwards. The scale depends on A too; Euler's identity for the
    homogeneous h gives its share without another pass:

    .. math:: \frac{\partial L}{\partial A} = W + \frac{\langle G, E \rangle - \langle W, A \rangle}{s}
        \frac{\partial s}{\partial A}, \qquad E = \tfrac12 Z \text{ (root)},\; I \text{ (logarithm)}

    Paper: Sec. 4, "computing the gradients by unrolling the iteration ... would allow the subsequent layers to adapt
    to the errors of the iterative method".
    Valid: every iterative forward, converged or not; a mu or schedule computed from A counts as a constant. Through the
    scale the map is not self-adjoint, so forward-mode derivatives need ``store=True``. There autograd replays
    products: call ``backward()`` outside autocast, as PyTorch advises anyway; ``store=False`` is safe inside as well.
    TensorFloat-32 is kept out of the products, but not out of the derivative of a Cholesky factor (`denman_beavers`).
    Cost: three products for each one of the forward; memory independent of the number of steps.

    Args:
        store: whether to keep the iterates (handled where the forward is run).
        algorithm: the forward with its options bound.
        scaled_by: the scale it used, or None for an iteration that uses none.
    """
    assert algorithm is not None, "unrolled: the composition binds the algorithm"
    del store  # whoever runs the forward has looked at it
    A = state.A
    if scaled_by is None:
        return _along(algorithm, f, A, grad_Z)
    s = scale_of(A, scaled_by)

    def fixed(A: Tensor, f: SpectralFunction) -> ForwardState:
        return algorithm(A, f, scale=s)  # type: ignore[call-arg]

    W = _along(fixed, f, A, grad_Z)
    if isinstance(scaled_by, Tensor):
        return W  # a scale that the caller gave is a constant
    share = ((grad_Z * f.euler(state.Z, f.p)).sum((-2, -1)) - (W * A).sum((-2, -1)))[..., None, None] / s
    return W + share * scale_gradient(A, scaled_by)


def _along(algorithm: Algorithm, f: SpectralFunction, A: Tensor, direction: Tensor) -> Tensor:
    """The directional derivative of the algorithm, by forward-mode differentiation."""
    A = A.expand_as(direction).contiguous()  # a dual number needs memory of its own
    with torch.no_grad():
        along: Tensor = torch.func.jvp(lambda A: algorithm(A, f).Z, (A,), (direction,))[1]
    return along
