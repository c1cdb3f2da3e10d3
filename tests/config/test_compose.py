"""What a command means: presets survive, words beat presets, hashes change with what changes results and with nothing else."""

from __future__ import annotations

import pickle
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetsys.config import Sweep, compose_cluster, compose_experiments, launch_with_hydra, rebuild
from hetsys.config.settings import PARTS
from hetsys.core.errors import ConfigError
from hetsys.core.experiment import Experiment
from hetsys.core.paths import shipped
from tests.config.conftest import WriteOption
from tests.config.fakes import Counting

PRESETS = sorted(path.stem for path in (shipped("conf") / "experiment").glob("*.yaml"))
OPTIONS = [
    (part, path.stem)
    for part in PARTS
    for path in sorted((shipped("conf") / part).glob("*.yaml"))
    if (part, path.stem) != ("workload", "tenants_file")
]
WITHOUT_SPEEDS = ("p100_3090_a100", "rtx_3070_3080_3090", "six_kinds", "xeon_a100", "cpu_generations", "local")
"""Clusters of kinds that the published workloads have no speeds for."""


def test_a_workload_without_a_seed_is_one_run_a_system(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("tenants: [{name: a, jobs: [{job_type: A3C, num_steps: 10}]}]")
    words = ["workload=tenants_file", f"workload.path={tmp_path / 't.yaml'}", "system=gavel,oef_coop"]
    made = sweep(*words, "seed=3,4,5")
    assert [(run.system, run.seed) for run in made.experiments] == [("gavel", 3), ("oef_coop", 3)]
    assert made.remarks == ("workload tenants_file is the same for every seed: one run a system",)
    failing = sweep(*words, "seed=3,4", "workload.failures_per_device_day=0.1")
    assert (len(failing.experiments), failing.remarks) == (4, ())
    assert sweep(*words, "seed=3").remarks == ()


def test_a_sweep_says_that_a_generator_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    (notice,) = sweep("workload=philly_tenants", "cluster=k80_p100_v100", "system=gavel,oef_coop", "seed=0").notices
    assert notice.startswith("the Philly trace is not here (HETSYS_DATA)")
    assert sweep("system=gavel", "seed=0").notices == ()


@pytest.mark.parametrize("preset", ["oef_tenants", "oef_philly", "oef_philly_week"])
def test_no_generator_stands_in_under_the_name_of_a_published_trace(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETSYS_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"HETSYS_DATA.*workload\.trace=generated"):
        sweep(f"experiment={preset}", "seed=0")
    assert sweep(f"experiment={preset}", "seed=0", "workload.trace=generated").experiments


def sweep(*words: str) -> Sweep:
    return compose_experiments(words)


def one(*words: str) -> Experiment:
    (experiment,) = sweep(*words).experiments
    return experiment


def runs(*words: str) -> list[tuple[str, int]]:
    return [(experiment.system, experiment.seed) for experiment in sweep(*words).experiments]


def own_speeds(folder: Path, cluster: str) -> list[str]:
    """The words for a tenant file with one job that runs on the slowest kind of a cluster."""
    kind = compose_cluster(cluster).kinds[0]
    (folder / "mine.csv").write_text(f"tenant,job_type,num_steps,steps_per_s.{kind}\na,mine,10,1\n")
    return ["workload=tenants_file", f"workload.path={folder / 'mine.csv'}"]


def expanded(text: str) -> list[str]:
    inside = text.removeprefix("range(").removesuffix(")")
    return [str(number) for number in range(int(inside))] if inside != text else re.split(r",(?![^\[]*\])", text)


def holds(stored: Any, stated: Any) -> bool:
    if isinstance(stated, dict):
        return all(holds(stored[key], value) for key, value in stated.items())
    if isinstance(stated, list):
        return len(stored) == len(stated) and all(map(holds, stored, stated))
    return bool(stored == stated)


def preset_file(preset: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shipped("conf") / "experiment" / f"{preset}.yaml").read_text())
    return found


def without_data(stated: dict[str, Any]) -> list[str]:
    """What lets a preset of a published trace be composed on a machine without it; takes out of `stated` what it replaces."""
    from_file = stated.get("workload", {}).get("trace") == "file"
    if from_file:
        stated["workload"].pop("trace")
    return ["workload.trace=generated"] if from_file else []


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_survives_composition(preset: str) -> None:
    """Every value that the preset sets is there in every run, and the runs are its sweep."""
    stated = preset_file(preset)
    composed = sweep(f"experiment={preset}", *without_data(stated))
    params = stated["hydra"]["sweeper"]["params"]
    assert "system" not in stated, "a preset never sets a system's private parameters"
    wanted = [dict(zip(params, choice, strict=True)) for choice in product(*map(expanded, params.values()))]
    assert [(experiment.system, experiment.seed) for experiment in composed.experiments] == [
        (choice["system"], int(choice["seed"])) for choice in wanted
    ]
    for key in params.keys() - {"system", "seed"}:
        part, _, leaf = key.partition(".")
        values = [yaml.safe_load(choice[key]) for choice in wanted]
        assert [yaml.safe_load(experiment.config_yaml)[part][leaf] for experiment in composed.experiments[::40]] == values[::40]
    assert composed.name == preset
    for experiment in {experiment.system: experiment for experiment in composed.experiments}.values():
        stored = yaml.safe_load(experiment.config_yaml)
        assert experiment.name == preset
        assert experiment.options["experiment"] == preset
        for choice in stated["defaults"]:
            ((group, option),) = choice.items()
            assert experiment.options[group.removeprefix("override /")] == option
        for key in stated.keys() - {"defaults", "hydra", "about"}:
            assert holds(stored[key], stated[key]), key


def test_the_default_is_a_preset_of_ten_systems_and_twenty_seeds() -> None:
    composed = sweep()
    assert composed.name == "oef"
    assert len({experiment.system for experiment in composed.experiments}) == 10
    assert len(composed.experiments) == 200


@pytest.mark.parametrize(("part", "option"), OPTIONS)
def test_every_option_composes_and_builds(part: str, option: str, tmp_path: Path) -> None:
    if part == "model" and option != "none":
        with pytest.raises(ConfigError, match="leave model out"):
            one("seed=0", "system=gavel", f"model={option}")
    else:
        system = option if part == "system" else "gavel"
        jobs = own_speeds(tmp_path, option) if part == "cluster" and option in WITHOUT_SPEEDS else []
        there = ["cluster=cpu_generations"] if option == "native_mix" else []
        experiment = one("seed=0", f"system={system}", f"{part}={option}", *jobs, *there)
        assert experiment.options[part] == option
        assert pickle.loads(pickle.dumps(experiment)) == experiment


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["system=gavel"], [("gavel", seed) for seed in range(20)]),
        (["system=gavel", "seed=3"], [("gavel", 3)]),
        (["-m", "system=oef_coop,gavel", "seed=0,1,2"], [(system, seed) for system in ("oef_coop", "gavel") for seed in (0, 1, 2)]),
        (["system=oef_coop,gavel", "seed=range(2)"], [("oef_coop", 0), ("oef_coop", 1), ("gavel", 0), ("gavel", 1)]),
        (
            ["-m", "experiment=null", "name=x", "seed=1,0", "system=gavel,ceei"],
            [("gavel", 1), ("ceei", 1), ("gavel", 0), ("ceei", 0)],
        ),
        (["experiment=null", "name=x", "system=ceei"], [("ceei", 0)]),
        (["system=gavel,gavel", "seed=1,1"], [("gavel", 1)]),
    ],
)
def test_words_take_the_place_of_the_presets_sweep(words: list[str], expected: list[tuple[str, int]]) -> None:
    assert runs(*words) == expected


def test_a_word_beats_the_preset_and_the_preset_beats_the_base() -> None:
    assert one("experiment=oef_smoke", "system=gavel").workload.tenants == 3
    assert one("experiment=oef_smoke", "system=gavel", "workload.tenants=5").workload.tenants == 5
    assert one("experiment=null", "name=x", "system=gavel").workload.tenants == 12
    assert sweep("experiment=oef_smoke", "baseline=equal_split").baseline == "equal_split"


def test_other_keys_can_be_swept() -> None:
    experiments = sweep("-m", "system=gavel", "seed=0", "workload.tenants=3,4").experiments
    assert [experiment.workload.tenants for experiment in experiments] == [3, 4]
    assert len({experiment.folder for experiment in experiments}) == 2


def test_a_sweep_over_a_key_of_the_workload_is_a_frame_a_value() -> None:
    words = ["-m", "experiment=null", "name=x", "workload=saturated", "system=gavel,oef_coop", "seed=0,1", "workload.spread=1,4"]
    experiments = sweep(*words).experiments
    assert len(experiments) == 8 and len({experiment.frame_hash for experiment in experiments}) == 2
    by_frame = {experiment.frame_hash: experiment.workload.spread for experiment in experiments}
    assert all(by_frame[experiment.frame_hash] == experiment.workload.spread for experiment in experiments)


@pytest.mark.parametrize("word", ["headline=[envy_max]", "reference=1.0", "reference=none"])
def test_what_tables_show_changes_no_hash(word: str) -> None:
    plain, other = one("system=gavel", "seed=0"), one("system=gavel", "seed=0", word)
    assert (other.frame_hash, other.run_hash) == (plain.frame_hash, plain.run_hash)
    assert yaml.safe_load(other.config_yaml)[word.partition("=")[0]] in (["envy_max"], 1.0, "none")


def test_systems_composed_together_equal_systems_composed_one_by_one() -> None:
    together = sweep("-m", "system=oef_coop,gavel,ceei", "seed=0", "workload.tenants=5").experiments
    apart = [one(f"system={experiment.system}", "seed=0", "workload.tenants=5") for experiment in together]
    assert [(a.config_yaml, a.run_hash, a.policy) for a in together] == [(b.config_yaml, b.run_hash, b.policy) for b in apart]


def test_a_word_for_every_system_reaches_every_system(own: WriteOption) -> None:
    for option, patience in (("calm", 1.0), ("hasty", 2.0)):
        folder = own("system", option, "Policy", f"patience: {patience}")
    words = ["--config-dir", str(folder), "-m", "system=calm,hasty", "seed=0"]
    assert [experiment.policy.patience for experiment in sweep(*words).experiments] == [1.0, 2.0]
    assert [experiment.policy.patience for experiment in sweep(*words, "system.patience=2").experiments] == [2.0, 2.0]


def test_a_preset_of_ones_own_that_reaches_into_systems_is_obeyed(own: WriteOption) -> None:
    for option, patience in (("calm", 1.0), ("hasty", 2.0)):
        folder = own("system", option, "Policy", f"patience: {patience}")
    preset = folder / "experiment" / "mine.yaml"
    preset.parent.mkdir()
    preset.write_text("# @package _global_\nname: mine\nsystem: {patience: 2.0}\n")
    words = ["--config-dir", str(folder), "experiment=mine", "-m", "system=calm,hasty"]
    assert [experiment.policy.patience for experiment in sweep(*words).experiments] == [2.0, 2.0]


def test_a_value_may_depend_on_the_seed(own: WriteOption) -> None:
    folder = own("system", "mine", "Policy", "patience: ${seed}")
    experiments = sweep("--config-dir", str(folder), "system=mine", "seed=3,5").experiments
    assert [experiment.policy.patience for experiment in experiments] == [3.0, 5.0]


BASE = ("system=gavel", "seed=0")


@pytest.mark.parametrize(
    "word",
    ["tracker=files", "tracker=wandb", "launch.workers=1", "resume=any", "plan_only=true", "baseline=ceei", "name=other",
     "require_source=simulated", "+workload.about.minutes=3"],
)  # fmt: skip
def test_what_changes_no_result_changes_no_hash(word: str) -> None:
    base, other = one(*BASE), one(*BASE, word)
    assert (other.frame_hash, other.run_hash) == (base.frame_hash, base.run_hash)


def test_the_results_folder_changes_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = one(*BASE)
    monkeypatch.setenv("HETSYS_RESULTS", str(tmp_path / "elsewhere"))
    other = one(*BASE)
    assert other.run_hash == base.run_hash
    assert other.folder != base.folder


@pytest.mark.parametrize(("word", "same_frame"), [("seed=1", True), ("system=ceei", True), ("workload.tenants=5", False)])
def test_what_changes_results_changes_the_hash(word: str, same_frame: bool) -> None:
    base, other = one(*BASE), one(*(w for w in BASE if w.split("=")[0] != word.split("=")[0]), word)
    assert other.run_hash != base.run_hash
    assert (other.frame_hash == base.frame_hash) is same_frame


def test_a_private_parameter_changes_the_run_but_not_the_frame(own: WriteOption) -> None:
    words = ["--config-dir", str(own("system", "mine", "Policy")), "system=mine", "seed=0"]
    base, other = one(*words), one(*words, "system.patience=3")
    assert other.frame_hash == base.frame_hash
    assert other.run_hash != base.run_hash


@pytest.mark.parametrize("preset", PRESETS)
def test_a_stored_configuration_rebuilds_its_experiment(preset: str, results_root: Path) -> None:
    stated = preset_file(preset)
    for experiment in sweep(f"experiment={preset}", "seed=4", *without_data(stated)).experiments:
        again = rebuild(experiment.config_yaml, results_root)
        assert again.config_yaml == experiment.config_yaml
        assert again == Experiment(**{**vars_of(experiment), "overrides": ()})


def vars_of(experiment: Experiment) -> dict[str, Any]:
    return {name: getattr(experiment, name) for name in Experiment.__dataclass_fields__}


@pytest.mark.parametrize("text", ["", "a: [", "a: 1", "[]"])
def test_a_stored_configuration_that_is_none_is_refused(text: str, results_root: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        rebuild(text, results_root)


def test_a_stored_configuration_of_another_version_is_refused(results_root: Path) -> None:
    text = one(*BASE).config_yaml.replace("  tenants: 6\n", "  tenants: 6\n  tenancy: 3\n")
    with pytest.raises(ConfigError, match=r"workload\.tenancy=3: no such key") as caught:
        rebuild(text, results_root)
    assert caught.value.key == "workload.tenancy"


def test_what_a_workload_finds_out_is_stored_and_hashed(own: WriteOption, results_root: Path) -> None:
    words = ["--config-dir", str(own("workload", "mine", "Resolving")), "workload=mine", *BASE]
    experiment = one(*words)
    assert experiment.workload.size == 42
    assert yaml.safe_load(experiment.config_yaml)["workload"]["size"] == 42
    assert experiment.run_hash == one(*words, "workload.size=42").run_hash != one(*words, "workload.size=41").run_hash
    assert rebuild(experiment.config_yaml, results_root).workload == experiment.workload


def test_a_workload_is_sampled_once_before_anything_runs(own: WriteOption) -> None:
    words = ["--config-dir", str(own("workload", "mine", "Counting")), "workload=mine", "-m", "system=gavel,ceei,oef_coop"]
    Counting.asked.clear()
    sweep(*words, "seed=7,8,9")
    assert Counting.asked == [7]
    sweep(*words, "seed=range(20)", "workload.size=1,2")
    assert Counting.asked == [7, 0, 0], "once for each workload"


def test_equal_parts_are_built_once_and_shared() -> None:
    first, *others = sweep("seed=0,1").experiments
    assert all(other.cluster is first.cluster and other.workload is first.workload for other in others)


def system_and_seed(experiment: Experiment) -> tuple[str, int]:
    return experiment.system, experiment.seed


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_launcher_of_hydras_runs_the_same_sweep(launcher: str, results_root: Path) -> None:
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra `sweep`")
    composed = sweep("-m", "system=gavel,ceei", "seed=0,1", f"hydra/launcher={launcher}")
    assert composed.launcher == launcher
    assert launch_with_hydra(composed, system_and_seed) == [("gavel", 0), ("gavel", 1), ("ceei", 0), ("ceei", 1)]
    assert not list(results_root.rglob("*.yaml")), "Hydra leaves nothing behind"
