r"""The paper's "Faster" scheme.

Legend: grad_Z = dL/dZ.
"""

from __future__ import annotations

from torch import Tensor

from ..contract import ForwardState, SpectralFunction


def identity(_state: ForwardState, grad_Z: Tensor, _f: SpectralFunction) -> Tensor:
    r"""dL/dA := dL/dZ, the matrix function being ignored in the backward pass.

    Paper: Sec. 3.5 and the column "Faster" of Table 3: "a faster scheme where the matrix square-root layer is ignored
    during fine-tuning". It can be read in two ways: the layer is absent while training, or present in the forward and
    skipped in the backward pass. We take the second, a straight-through gradient, since the column stands among
    "gradient computation techniques in the backward step"; the first needs no gradient rule: leave the layer out.
    Valid: not a gradient. For the square root it is too large by 2 sqrt(sigma) along an eigenvector: with the
    paper's spectra (10^6) the learning rate has to be smaller, or the next layer must normalize.
    Cost: none.
    """
    return grad_Z.clone()
