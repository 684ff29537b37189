# The public names: type checkers read them here, and so does `bcnn/__init__.py`.
from .classify.estimator import Classifier as Classifier
from .errors import ClampedSpectrumWarning as ClampedSpectrumWarning
from .errors import ConvergenceError as ConvergenceError
from .errors import GradientExceptionWarning as GradientExceptionWarning
from .errors import NoisySpectrumWarning as NoisySpectrumWarning
from .errors import NotConvergedWarning as NotConvergedWarning
from .errors import NotFiniteError as NotFiniteError
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
from .models.bcnn import BCNN as BCNN
from .models.bcnn import build_model as build_model
from .models.files import load as load
from .models.files import read_notes as read_notes
from .models.files import save as save
from .pooling.asymmetric import asymmetric_pool as asymmetric_pool
from .pooling.average import average_pool as average_pool
from .pooling.bilinear import bilinear_pool as bilinear_pool
from .pooling.head import Head as Head
from .pooling.head import describe as describe
from .pooling.normalize import L2Normalize as L2Normalize
from .pooling.normalize import SignedSqrt as SignedSqrt
from .pooling.normalize import l2_normalize as l2_normalize
from .pooling.normalize import signed_sqrt as signed_sqrt
from .pooling.triangle import full_matrix as full_matrix
from .pooling.triangle import upper_triangle as upper_triangle

__version__: str
