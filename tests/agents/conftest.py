from __future__ import annotations

import pytest

from agents.roles import load_roles
from agents.rolespec import RoleSpec
from envsim import registry
from envsim.api import Environment


@pytest.fixture(scope="session")
def lake() -> Environment:
    return registry.get("lake")


@pytest.fixture(scope="session")
def roles() -> dict[str, RoleSpec]:
    return load_roles()
