"""The systems of Table 4, and some after it, each in the words of `bcnn train`; docs/systems_*.md tell of them.

A row is a preset with options of `bcnn.Head`; where that is not all, a scorer, a front or a second network. Names have
no commas: `bcnn reproduce --systems` takes several.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from .jobs.boosted import Boosted
from .jobs.source import source_of
from .jobs.system import System, system
from .jobs.tuned import partner_of
from .records import Subject


@dataclass(frozen=True)
class Row:
    """A system with the frozen network.

    Attributes:
        preset: what it starts from.
        options: of `bcnn.Head`, that change it.
        printed: the method of the paper's Table 4 that it stands beside, by the paper's name; "" for none.
        scorer: in the place of SVMs, which it starts from.
        front: a part before the network.
        two: whether a second network stands beside the first (`partner_of`).
        boxes: whether it takes boxes, which not all datasets have.
        rounds: of boosting, in the place of SVMs; 0 for none.
    """

    preset: str
    options: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    scorer: str = "linear"
    front: str | None = None
    two: bool = False
    boxes: bool = False
    rounds: int = 0

    def job(self, subject: Subject) -> System | Boosted:
        """The job that measures this system."""
        source = replace(source_of(subject), front=self.front)
        if self.two:
            source = replace(source, network=f"{subject.network},{partner_of(subject.network)}")
        own = system(source, self.preset, scorer=self.scorer, rescale=subject.rescale, **self.options)
        return Boosted(source, own.head, self.preset, self.rounds, rescale=subject.rescale) if self.rounds else own


_ROOT_L2 = ("signed_sqrt", "l2")

SYSTEMS: dict[str, Row] = {
    "average": Row("average"),
    "bcnn": Row("bcnn", printed="B-CNN"),
    "improved_bcnn": Row("improved_bcnn", printed="Improved B-CNN"),
    "o2p": Row("o2p"),
    "o2p (power 0.75)": Row("o2p", {"normalize": ("matrix_log", "signed_power(0.75)", "l2")}),
    "cbp": Row("cbp", printed="CBP"),
    "cbp (Random Maclaurin)": Row("cbp", {"normalize": ("random_maclaurin", *_ROOT_L2)}),
    "cbp_sqrt": Row("cbp_sqrt"),
    "lrbp": Row("bcnn", {"normalize": ()}, "LRBP", scorer="lrbp"),
    "lrbp (square root)": Row("improved_bcnn", {"normalize": ("matrix_sqrt", "l2")}, scorer="lrbp"),
    "kernel": Row("kernel", printed="KP"),
    "bcnn (boosted)": Row("bcnn", printed="BoostCNN", rounds=50),
    "two networks": Row("bcnn", {"pooling": "asymmetric"}, two=True),
    "two networks (singular_power)": Row(
        "bcnn", {"pooling": "asymmetric", "normalize": ("singular_power", *_ROOT_L2)}, two=True
    ),
    "foreground": Row("bcnn", printed="Krause et al.", front="foreground", boxes=True),
    "pd_swfv": Row("bcnn", {"pooling": "pd_swfv"}, "PD+SWFV-CNN"),
    "pd_swfv (parts)": Row("bcnn", {"pooling": "pd_swfv(parts=True)"}, "PD+FC+SWFV-CNN"),
    "fisher": Row("bcnn", {"pooling": "fisher"}),
    "vlad": Row("bcnn", {"pooling": "vlad"}),
    "netvlad": Row("bcnn", {"pooling": "netvlad", "normalize": ("l2",)}),
    "democratic": Row("bcnn", {"pooling": "democratic(eps=0)"}),
    "democratic (square root)": Row("improved_bcnn", {"pooling": "democratic"}),
    "democratic (sketched)": Row("cbp", {"pooling": "democratic(eps=0)"}),
    "mpn_cov": Row("mpn_cov"),
    "isqrt_cov": Row("isqrt_cov"),
    "g2denet": Row("g2denet"),
    "monet": Row("monet"),
    "dropcov": Row("dropcov"),
    "cross_covariance": Row("average", {"pooling": "cross_covariance(start=pca, root=all)", "normalize": ("l2",)}),
    "Pow-EMLR": Row("bcnn", {"pooling": "bilinear", "normalize": ("matrix_power(0.5)",)}),
    "ScalePow-EMLR": Row("bcnn", {"pooling": "bilinear", "normalize": ("tangent_power(shift=False)",)}),
    "Pow-TMLR": Row("bcnn", {"pooling": "bilinear", "normalize": ("tangent_power",)}),
    "Cho-TMLR": Row("bcnn", {"pooling": "bilinear", "normalize": ("cholesky_log",)}),
}


def rows_of(subject: Subject) -> dict[str, Row]:
    """The systems that can be measured on a dataset."""
    return {name: row for name, row in SYSTEMS.items() if subject.boxes or not row.boxes}
