import pytest
from chart import Chart
from helm import MISSING, find_helm


@pytest.fixture(scope="session")
def chart(pytestconfig: pytest.Config) -> Chart:
    helm = find_helm(pytestconfig.cache.mkdir("helm"))
    if helm is None:
        pytest.skip(MISSING)
    return Chart(helm)
