"""A timm network as a row of the paper's tables; runs where timm is installed (`make test-timm`)."""

import pytest

from bcnn.experiments import EXPERIMENTS
from tests.experiments.lab import make_shop, make_subject, measure
from tests.models.backbones.torchvision_schemas import declare

pytestmark = pytest.mark.timm


def test_a_row_of_table_1(tmp_path):
    declare()
    pytest.importorskip("timm")
    shop = make_shop(tmp_path)
    subject = make_subject(shop, network="timm/convnext_atto")
    results, failures = measure(shop, subject, ["table1_normalization"])
    assert not failures
    overview, _ = EXPERIMENTS["table1_normalization"].blocks(results, [subject])
    rows = [row for row in overview.rows if row[0] == "timm/convnext_atto"]
    assert len(rows) == 5
    assert all(row[3] != "not run" for row in rows)
