"""Linear classifiers over descriptors wider than memory; one file per method, registered here."""

from functools import partial

from .contract import ClassifierKind
from .logistic import solve_logistic
from .stream import StreamedSVM
from .svm import solve_svm

CLASSIFIERS: dict[str, ClassifierKind] = {
    "svm": ClassifierKind(
        solve_svm, about="one-vs-rest, hinge loss", one_vs_rest=True, streamed=StreamedSVM
    ),  # the paper's
    "svm_squared": ClassifierKind(
        partial(solve_svm, squared=True),
        about="one-vs-rest, squared hinge loss",
        one_vs_rest=True,
        streamed=partial(StreamedSVM, squared=True),
    ),
    "logistic": ClassifierKind(
        solve_logistic, about="multinomial logistic regression", one_vs_rest=False, temperature=1.0
    ),
}
