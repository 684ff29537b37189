"""All artifacts, measured once for all tests and all of their processes."""

import pytest
from filelock import FileLock

from bcnn.experiments.results import FILE, Results
from tests.experiments.lab import make_shop, make_subject, measure


@pytest.fixture(scope="session")
def lab(tmp_path_factory, worker_id):
    """The workshop, the subject and the results of everything."""
    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "lab"
    root.mkdir(exist_ok=True)
    with FileLock(root / "lock"):
        shop = make_shop(root)
        subject = make_subject(shop)
        if not (root / "done").exists():
            _, failures = measure(shop, subject)
            assert not failures
            (root / "done").touch()
    return shop, subject, Results(shop.out / FILE)
