"""Where a run's numbers will come from, what must hold before it may be executed, and which presets a command runs beside its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hetsys.config import compose_cluster, compose_command, compose_experiments, rebuild
from hetsys.config.build import MAX_REAL_STEPS
from hetsys.core import host
from hetsys.core.devicetime.charge import Charge
from hetsys.core.errors import ConfigError
from hetsys.core.experiment import Experiment
from hetsys.core.paths import shipped
from tests.config.conftest import one_line

FAST = ("system=gavel", "seed=0")
NATIVE = ("cluster=cpu_generations", "workload=native_mix")


def one(*words: str) -> Experiment:
    (experiment,) = compose_experiments([*FAST, *words]).experiments
    return experiment


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ((), "simulated"),
        (("backend=torch",), "emulated"),
        ((*NATIVE, "backend=torch"), "measured"),
        (NATIVE, "simulated"),
        (("experiment=oef_smoke",), "emulated"),
        (("experiment=oef_live",), "emulated"),
        (("experiment=oef_live_sim",), "simulated"),
        (("experiment=oef_native",), "measured"),
    ],
)
def test_the_source_follows_from_backend_and_cluster(words: tuple[str, ...], source: str) -> None:
    experiment = one(*words)
    assert (experiment.source, experiment.live) == (source, source != "simulated")
    assert one(*words, f"require_source={source}").source == source
    other = "published" if source == "measured" else "measured"
    with pytest.raises(ConfigError, match=rf"require_source='{other}': .*gives '{source}' numbers"):
        one(*words, f"require_source={other}")


def test_the_backend_and_its_charge_are_part_of_the_frame() -> None:
    sim, torch, charged = one(), one("backend=torch"), one("backend.charge_s=0.1")
    assert len({sim.frame_hash, torch.frame_hash, charged.frame_hash}) == 3
    assert (sim.charge, charged.charge) == (Charge(), Charge("constant", 0.1))
    assert one("backend.charge_policy=measured").charge == Charge("measured", 0.0)


@pytest.mark.parametrize("word", ["backend.charge_s=-1", "backend.charge_policy=none"])
def test_a_charge_that_is_none_is_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line([word], capsys).startswith(f"hetsys: {word.partition('=')[0]}=")


def test_short_and_long_presets_share_their_frame() -> None:
    assert one("experiment=oef_live").frame_hash == one("experiment=oef_live_short").frame_hash
    assert one("experiment=oef_native").frame_hash == one("experiment=oef_native_short").frame_hash
    assert one("experiment=oef").frame_hash == one("experiment=oef_live_sim").frame_hash


def test_what_is_executed_is_small_enough_and_its_restarts_cost_as_much_of_a_round_as_elsewhere() -> None:
    experiment = one("experiment=oef_live")
    mix = experiment.workload
    steps = [sum(job.num_steps * job.gang for job in mix.sample(seed, experiment.cluster).jobs) for seed in range(20)]
    assert 10_000 < sum(steps) / 20 < 20_000 and max(steps) < 40_000
    assert mix.restart_s / mix.round_s == pytest.approx(20 / 360) and (mix.profile_error, mix.learns) == (0.05, True)


def tenants(folder: Path, job: str) -> list[str]:
    (folder / "t.yaml").write_text(f"tenants: [{{name: a, jobs: [{{{job}}}]}}]")
    return ["workload=tenants_file", f"workload.path={folder / 't.yaml'}"]


def test_a_job_type_without_a_program_can_be_simulated_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = tenants(tmp_path, "job_type: our-7b, num_steps: 10, steps_per_s: {v100: 1}")
    assert one(*words).source == "simulated"
    line = one_line([*FAST, *words, "backend=torch"], capsys)
    assert line.startswith("hetsys: backend='torch': job type 'our-7b' has nothing that trains: add `program: FAMILY/SIZE`")
    with_program = tenants(tmp_path, "job_type: our-7b, num_steps: 10, steps_per_s: {v100: 1}, program: transformer/tiny")
    assert one(*with_program, "backend=torch").source == "emulated"
    assert one(*tenants(tmp_path, "job_type: A3C, num_steps: 10"), "backend=torch").source == "emulated"


def test_an_emulated_run_of_absurdly_many_steps_is_refused_with_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gang = "job_type: LM (batch size 10), gang: 4, num_steps: {}"
    assert one(*tenants(tmp_path, gang.format(MAX_REAL_STEPS // 4)), "backend=torch").source == "emulated"
    line = one_line([*FAST, *tenants(tmp_path, gang.format(MAX_REAL_STEPS // 4 + 1)), "backend=torch"], capsys)
    assert "would really make 5,000,004 training steps a run (1 jobs" in line and "workload.duration_scale" in line
    assert one_line(["experiment=oef_mix", *FAST, "backend=torch"], capsys).startswith("hetsys: backend='torch': would really make")


def test_a_cluster_that_is_found_out_is_stored_as_what_it_is(tmp_path: Path, results_root: Path) -> None:
    kind = compose_cluster("local").kinds[0]
    words = tenants(tmp_path, f"job_type: x, num_steps: 10, steps_per_s: {{{kind}: 1}}, program: conv/tiny")
    experiment = one("cluster=local", *words, "backend=torch")
    assert experiment.source == "measured" and experiment.options["cluster"] == "local"
    stored = yaml.safe_load(experiment.config_yaml)["cluster"]
    assert stored["_target_"] == "hetsys.core.cluster.Cluster" and stored["nodes"][0]["kind"] == kind
    again = rebuild(experiment.config_yaml, results_root)
    assert (again.cluster, again.run_hash) == (experiment.cluster, experiment.run_hash)


def test_a_workload_for_this_machine_is_stored_with_its_speeds(results_root: Path) -> None:
    experiment = one("experiment=oef_native")
    stored = yaml.safe_load(experiment.config_yaml)["workload"]
    assert stored["calibration"] == "shipped" and stored["steps_per_s"]["conv/full"].keys() == {"cpu_sse41", "cpu_full"}
    again = rebuild(experiment.config_yaml, results_root)
    assert (again.workload, again.frame_hash) == (experiment.workload, experiment.frame_hash)


def test_the_default_command_runs_measured_emulated_and_simulated() -> None:
    sweeps = compose_command(["tracker=files", "resume=any"])
    assert [(sweep.name, sweep.experiments[0].source) for sweep in sweeps] == [
        ("oef_native_short", "measured"), ("oef_live_short", "emulated"), ("oef", "simulated"),
    ]  # fmt: skip
    assert {(run.tracker, run.resume) for sweep in sweeps for run in sweep.experiments} == {("files", "any")}
    live, simulated = ({(run.system, run.seed) for run in sweep.experiments} for sweep in sweeps[1:])
    assert live < simulated and {seed for _, seed in simulated} == set(range(20))


@pytest.mark.parametrize("words", [["system=gavel"], ["plan_only=true"], ["workload.tenants=3", "-m"], ["require_source=simulated"]])
def test_a_word_that_changes_what_is_run_leaves_out_what_is_beside_and_says_so(words: list[str]) -> None:
    (sweep,) = compose_command(words)
    assert sweep.name == "oef"
    (remark,) = sweep.remarks
    assert remark.startswith(f"oef alone, because of {words[0]}") and "experiment=oef_native_short and experiment=oef_live_short" in remark


def test_a_preset_without_others_beside_it_says_nothing() -> None:
    (sweep,) = compose_command(["experiment=oef_smoke", "seed=0"])
    assert sweep.remarks == ()


def test_what_this_machine_cannot_run_is_left_out_of_the_default_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from hetsys.runner.command import _runnable

    monkeypatch.setattr(host, "usable_cores", lambda: 1)
    kept = _runnable(compose_command([]))
    assert [sweep.name for sweep in kept] == ["oef_live_short", "oef"]
    (remark,) = kept[-1].remarks
    assert remark.startswith("left out, as this machine cannot run it: experiment=oef_native_short: cluster.nodes='2 CPU workers'")
    with pytest.raises(ConfigError, match="2 CPU workers"):
        _runnable(compose_command(["experiment=oef_native_short"]))


@pytest.mark.parametrize("preset", sorted(path.stem for path in (shipped("conf") / "experiment").glob("*.yaml")))
def test_presets_beside_a_preset_exist(preset: str) -> None:
    beside = yaml.safe_load((shipped("conf") / "experiment" / f"{preset}.yaml").read_text()).get("beside", [])
    assert {path.stem for path in (shipped("conf") / "experiment").glob("*.yaml")} >= set(beside) and preset not in beside
