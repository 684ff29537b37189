import pytest

from tests.descriptors.images import picture_folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=3, train=8, test=3)
