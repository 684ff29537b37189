"""Second-order (bilinear) pooling of CNN features, after Lin & Maji, "Improved Bilinear Pooling with CNNs" (2017).

The public names are those of `__init__.pyi`; they are imported when first used, so that the command line answers
without waiting for torch.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
