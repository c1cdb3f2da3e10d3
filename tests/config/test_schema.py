"""A schema says exactly what its class says: same fields, same defaults, types that OmegaConf can refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue, ReadonlyConfigError, ValidationError

from hetsys.config.schema import register_folder, root_twin, twin
from hetsys.core.errors import ConfigError
from tests.config.conftest import WriteOption
from tests.config.fakes import Everything, Inner, WithAbout, WithPath


def schema(**values: object) -> object:
    return OmegaConf.merge(OmegaConf.structured(twin(Everything)), values)


def test_defaults_are_those_of_the_class() -> None:
    made = OmegaConf.to_container(schema(required=1))
    assert made == {
        "_target_": "tests.config.fakes.Everything",
        "required": 1,
        "number": 0.5,
        "flag": False,
        "text": "abc",
        "maybe": None,
        "mode": "fast",
        "inner": {"_target_": "tests.config.fakes.Inner", "count": 3, "scale": None},
        "maybe_inner": None,
        "inners": [],
        "pair": [1, 2],
        "names": ["a"],
        "mixed": [1, "a"],
        "prices": {},
        "sheets": {},
        "curves": {},
        "anything": None,
    }


def test_elements_of_lists_and_mappings_are_typed_too() -> None:
    made = schema(
        required=1, inners=[{"count": 2}], sheets={"a": {"count": 4, "scale": 2}}, prices={"a": 3}, curves={"a": [1, 2.5]}
    )
    assert made.inners[0]._target_ == "tests.config.fakes.Inner"  # type: ignore[attr-defined]
    assert made.sheets.a.scale == 2.0  # type: ignore[attr-defined]
    assert made.prices.a == 3.0  # type: ignore[attr-defined]
    assert made.curves.a == [1, 2.5]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "values",
    [
        {"required": "x"},
        {"required": 1.5},
        {"number": "fast"},
        {"flag": 3.5},
        {"maybe": "x"},
        {"inner": 3},
        {"inner": {"count": "x"}},
        {"inners": 3},
        {"inners": [{"count": "x"}]},
        {"pair": ["x", 1]},
        {"prices": {"a": "x"}},
        {"number": None},
    ],
)
def test_a_wrong_type_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        schema(**values)


@pytest.mark.parametrize("values", [{"requird": 1}, {"inner": {"cout": 1}}, {"inners": [{"cout": 1}]}, {"hidden": 3}])
def test_a_misspelt_key_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigKeyError):
        schema(**values)


def test_a_field_without_default_is_mandatory() -> None:
    with pytest.raises(MissingMandatoryValue):
        OmegaConf.to_container(schema(), throw_on_missing=True)


def test_a_frozen_class_does_not_make_its_configuration_read_only() -> None:
    made = schema(required=1)
    try:
        made.inner.count = 9  # type: ignore[attr-defined]
    except ReadonlyConfigError:
        pytest.fail("a twin must be mutable")
    assert made.inner.count == 9  # type: ignore[attr-defined]


def test_two_schemas_do_not_share_their_mutable_defaults() -> None:
    first, second = twin(Everything)(), twin(Everything)()
    first.names.append("b")
    assert second.names == ["a"]


def test_only_the_root_of_a_file_has_words_around_it() -> None:
    assert "about" in root_twin(Inner)().__dict__
    assert "about" not in twin(Inner)().__dict__
    assert issubclass(root_twin(Inner), twin(Inner))


@pytest.mark.parametrize(("cls", "words"), [(WithPath, r"WithPath\.where: .*Path"), (WithAbout, r"WithAbout\.about")])
def test_a_type_that_no_yaml_holds_names_its_field(cls: type, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        twin(cls)


@pytest.mark.parametrize(
    ("cls", "key", "remedy"),
    [
        ("Evrything", "_target_", "did you mean 'Everything'"),
        ("NotADataclass", "_target_", "must be a dataclass"),
        ("missing.Thing", "_target_", "cannot be imported"),
    ],
)
def test_a_file_whose_class_cannot_be_used_is_named(own: WriteOption, cls: str, key: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy) as caught:
        register_folder(own("system", "mine", cls))
    assert caught.value.key == key
    assert "mine.yaml" in caught.value.remedy


@pytest.mark.parametrize("text", ["# @package _global_\n", "other: override /workload\n"])
def test_an_option_may_not_reach_beyond_its_group(own: WriteOption, text: str) -> None:
    with pytest.raises(ConfigError, match="only a preset"):
        register_folder(own("system", "mine", "Policy", text))


def test_a_file_without_its_schema_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "mine.yaml").write_text("_target_: tests.config.fakes.Policy\n")
    with pytest.raises(ConfigError, match="/schema/system/mine@_here_"):
        register_folder(tmp_path)
