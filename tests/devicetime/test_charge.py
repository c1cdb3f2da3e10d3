"""What a decision costs on the clock."""

from __future__ import annotations

import pytest

from hetsys.core.devicetime.charge import Charge
from hetsys.core.errors import ConfigError


def test_a_constant_is_charged_whatever_it_took() -> None:
    assert Charge().seconds(3.0) == 0.0
    assert Charge("constant", 0.25).seconds(3.0) == 0.25


def test_what_it_took_is_charged_where_that_is_wanted() -> None:
    assert Charge("measured", 0.25).seconds(3.0) == 3.0


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"backend\.charge_s"):
        Charge("constant", seconds)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ConfigError, match=r"backend\.charge_policy='free'"):
        Charge("free")
