"""Second-order (bilinear) pooling of CNN features, after Lin & Maji, "Improved Bilinear Pooling with CNNs" (2017)."""

from .errors import ClampedSpectrumWarning as ClampedSpectrumWarning
from .errors import ConvergenceError as ConvergenceError
from .errors import GradientExceptionWarning as GradientExceptionWarning
from .errors import NotConvergedWarning as NotConvergedWarning
from .errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from .errors import PrecisionFallbackWarning as PrecisionFallbackWarning
from .errors import SecondDerivativeError as SecondDerivativeError
from .matfun.compose import MatrixFunctionInfo as MatrixFunctionInfo
from .matfun.functions.logm import logm as logm
from .matfun.functions.powm import powm as powm
from .matfun.functions.sqrtm import sqrtm as sqrtm
from .matfun.modules import MatrixLog as MatrixLog
from .matfun.modules import MatrixPower as MatrixPower
from .matfun.modules import MatrixSqrt as MatrixSqrt

__version__ = "0.1.0"
