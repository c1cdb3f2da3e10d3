"""Hand-written tenant files: what they mean, and that each mistake ends in one line with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsys.core.cluster import Cluster
from hetsys.core.errors import ConfigError
from hetsys.core.scheduling.trace import Tenant
from hetsys.workloads.tenants_file import TenantsFile
from hetsys.workloads.throughputs import read_throughputs

EXAMPLES = Path(__file__).parents[2] / "experiments/oef/examples"
HEAD = "tenant,job_type,gang,num_steps,steps_per_s.k80,steps_per_s.v100\n"
JOB = "job_type: A3C, num_steps: 10"


def _write(tmp_path: Path, name: str, text: str) -> TenantsFile:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return TenantsFile(path=str(path))


def test_the_two_examples_say_the_same(cluster: Cluster) -> None:
    traces = [TenantsFile(path=str(EXAMPLES / f"my_tenants.{form}")).sample(0, cluster) for form in ("yaml", "csv")]
    assert traces[0].tenants == traces[1].tenants
    assert traces[0].jobs == traces[1].jobs
    assert traces[0].tenants == (Tenant("vision", 2.0), Tenant("language", 1.0, 172_800.0), Tenant("guests", 0.0))
    by_name = {job.name: job for job in traces[0].jobs}
    assert set(by_name) == {"vision-0", "vision-1", "vision-2", "pretraining", "language-1", "guests-0", "guests-1"}
    assert by_name["vision-2"].steps_per_s == read_throughputs().rows["ResNet-50 (batch size 64)", 2].steps_per_s
    assert by_name["pretraining"].steps_per_s == {"k80": 0.05, "p100": 0.21, "v100": 0.62}
    assert by_name["pretraining"].spread_steps_per_s == {"p100": 0.17, "v100": 0.48}
    assert (by_name["pretraining"].gang, by_name["pretraining"].arrival_s) == (4, 3600.0)


def test_speeds_of_kinds_that_the_cluster_lacks_are_left_out(tmp_path: Path, cluster: Cluster, small_k80_cluster: Cluster) -> None:
    speeds = "steps_per_s: {k80: 1, v100: 2, h100: 9}, spread_steps_per_s: {h100: 8}"
    workload = _write(tmp_path, "t.yaml", f"tenants: [{{name: a, jobs: [{{{JOB}, {speeds}}}]}}]")
    (job,), (small,) = workload.sample(0, cluster).jobs, workload.sample(0, small_k80_cluster).jobs
    assert (job.steps_per_s, job.spread_steps_per_s) == ({"k80": 1.0, "v100": 2.0}, {})
    assert small.steps_per_s == {"k80": 1.0}


def test_a_job_type_of_ones_own_may_say_what_trains(tmp_path: Path, cluster: Cluster) -> None:
    own = "job_type: mine, num_steps: 5, steps_per_s: {v100: 1}"
    jobs = f"{{{own}, program: transformer/tiny}}, {{{own}}}, {{{JOB}}}, {{{JOB}, program: lstm/tiny}}"
    trace = _write(tmp_path, "t.yaml", f"tenants: [{{name: a, jobs: [{jobs}]}}]").sample(0, cluster)
    assert [job.program for job in trace.jobs] == ["transformer/tiny", "", "actor_critic/tiny", "lstm/tiny"]
    table = _write(tmp_path, "t.csv", HEAD.replace("gang", "gang,program") + "a,mine,1,conv/tiny,10,,1\nb,A3C,1,,10,,\n")
    assert [job.program for job in table.sample(0, cluster).jobs] == ["conv/tiny", "actor_critic/tiny"]


def test_only_failures_depend_on_the_seed() -> None:
    assert not TenantsFile(path="t.yaml").seeded
    assert TenantsFile(path="t.yaml", failures_per_device_day=0.1).seeded


def test_published_speeds_on_a_cluster_with_other_kinds_too(tmp_path: Path, h100_cluster: Cluster) -> None:
    trace = _write(tmp_path, "t.yaml", f"tenants: [{{name: a, jobs: [{{{JOB}}}]}}]").sample(0, h100_cluster)
    assert trace.jobs[0].steps_per_s == read_throughputs().rows["A3C", 1].steps_per_s


def test_what_admission_parks_stays_in_the_trace(tmp_path: Path, cluster: Cluster) -> None:
    text = """
tenants:
  - name: no-jobs
  - name: no-speed
    jobs: [{job_type: mine, num_steps: 5, steps_per_s: {k80: 0, p100: 0}}]
  - name: too-large
    jobs: [{job_type: mine, num_steps: 5, gang: 64, steps_per_s: {v100: 3}}]
"""
    trace = _write(tmp_path, "t.yaml", text).sample(0, cluster)
    assert [tenant.name for tenant in trace.tenants] == ["no-jobs", "no-speed", "too-large"]
    assert [(job.gang, dict(job.steps_per_s)) for job in trace.jobs] == [(1, {"k80": 0.0, "p100": 0.0}), (64, {"v100": 3.0})]


def test_csv_rows_of_a_tenant_may_stand_apart(tmp_path: Path, cluster: Cluster) -> None:
    text = "tenant,weight,job_type,num_steps,arrival_s,count\na,,A3C,10,5,\nb,,,,,\na,3,CycleGAN,1e3,,2\n"
    trace = _write(tmp_path, "t.csv", text).sample(0, cluster)
    assert trace.tenants == (Tenant("a", 3.0), Tenant("b"))
    assert [(job.name, job.num_steps, job.arrival_s) for job in trace.jobs] == [("a-1", 1000, 0), ("a-2", 1000, 0), ("a-0", 10, 5)]


def test_numbers_that_yaml_reads_as_text_count_as_numbers(tmp_path: Path, cluster: Cluster) -> None:
    trace = _write(tmp_path, "t.yaml", "tenants: [{name: a, jobs: [{job_type: A3C, num_steps: 1e5}]}]").sample(0, cluster)
    assert trace.jobs[0].num_steps == 100_000


def test_provenance_is_the_worst_of_the_inputs(tmp_path: Path, cluster: Cluster) -> None:
    published = _write(tmp_path, "p.yaml", f"tenants: [{{name: a, jobs: [{{{JOB}}}]}}]")
    own = _write(tmp_path, "o.yaml", "tenants: [{name: a, jobs: [{job_type: x, num_steps: 1, steps_per_s: {k80: 1}}]}]")
    assert published.sample(0, cluster).provenance == "derived"
    assert TenantsFile(path=published.path, provenance="measured").sample(0, cluster).provenance == "published"
    measured = TenantsFile(path=own.path, provenance="measured").sample(0, cluster)
    assert measured.provenance == "measured"
    assert list(measured.data_sha256) == [own.path]


def test_a_file_that_changed_after_resolve_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    workload = _write(tmp_path, "t.yaml", f"tenants: [{{name: a, jobs: [{{{JOB}}}]}}]").resolve()
    assert workload.sample(0, cluster).data_sha256[workload.path] == workload.sha256
    assert workload.resolve() is workload
    Path(workload.path).write_text(f"tenants: [{{name: b, jobs: [{{{JOB}}}]}}]")
    with pytest.raises(ConfigError, match=r"workload.path=.*the file has changed"):
        workload.sample(0, cluster)


def test_failures_do_not_change_the_jobs(tmp_path: Path, cluster: Cluster) -> None:
    plain = _write(tmp_path, "t.yaml", f"tenants: [{{name: a, jobs: [{{{JOB}}}]}}]")
    upset = TenantsFile(path=plain.path, failures_per_device_day=0.3, max_rounds=3000)
    assert upset.sample(1, cluster).jobs == plain.sample(1, cluster).jobs
    assert upset.sample(1, cluster).failures != upset.sample(2, cluster).failures


def _yaml(job: str = JOB, tenant: str = "name: a", more: str = "") -> str:
    return f"tenants:\n  - {tenant}\n    jobs: [{{{job}}}]\n{more}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tenants: [", r"t\.yaml:\d+'?: is not valid YAML"),
        ("", r"workload\.path='.*t\.yaml': is empty; begin it with `tenants:`"),
        ("tenants: []", "has no tenants"),
        ("tenants: 3", r"t\.yaml: tenants=3: must be a list"),
        ("tenant: []", r"t\.yaml='tenant': unknown key; did you mean 'tenants'"),
        (_yaml(tenant="nam: a"), r"tenants\[0\]='nam': unknown key; did you mean 'name'"),
        (_yaml(tenant="weight: 1"), r"tenants\[0\]: name=None: must be given"),
        (_yaml(more="  - name: a\n"), r"tenants\[1\] 'a': name='a': another tenant has this name, at .*tenants\[0\] 'a'"),
        (_yaml(JOB + ", name: x}, {name: x, " + JOB), r"'a', jobs\[1\]: name='x': another job has this name, at .*jobs\[0\]"),
        (_yaml(tenant="name: a\n    weight: -1"), r"tenants\[0\] 'a': weight=-1: must be 0 or more"),
        (_yaml(tenant="name: a\n    weight: true"), r"weight=True: must be a number"),
        (_yaml(tenant="name: a\n    leaves_s: -5"), r"leaves_s=-5: must be 0 or more"),
        (_yaml("num_steps: 10"), r"'a', jobs\[0\]: job_type=None: must be given"),
        (_yaml("job_type: A3C"), r"'a', jobs\[0\]: num_steps=None: must be given"),
        (_yaml(JOB + ", gangs: 2"), r"jobs\[0\]='gangs': unknown key; did you mean 'gang'"),
        (_yaml(JOB + ", gang: 0"), r"jobs\[0\]: gang=0: must be 1 or more"),
        (_yaml(JOB + ", gang: 2"), r"jobs\[0\]: gang=2: A3C was published for gangs of 1; choose one, or give steps_per_s"),
        (_yaml(JOB + ", arrival_s: -1"), r"jobs\[0\]: arrival_s=-1: must be 0 or more"),
        (_yaml(JOB + ", count: 0"), r"jobs\[0\]: count=0: must be 1 or more"),
        (_yaml("job_type: A3C, num_steps: 0"), r"jobs\[0\]: num_steps=0: must be 1 or more"),
        (_yaml("job_type: A3D, num_steps: 1"), r"job_type='A3D': has no steps_per_s .* did you mean 'A3C'"),
        (_yaml(JOB + ", steps_per_s: {v10: 1}"), r"steps_per_s='v10': is no kind of device; did you mean 'v100'"),
        (_yaml(JOB + ", steps_per_s: {v100: .nan}"), r"jobs\[0\]: steps_per_s\.v100=nan: must be finite"),
        (_yaml(JOB + ", steps_per_s: {v100: .inf}"), r"steps_per_s\.v100=inf: must be finite"),
        (_yaml(JOB + ", steps_per_s: {v100: -1}"), r"steps_per_s\.v100=-1: must be 0 or more"),
        (_yaml(JOB + ", steps_per_s: {v100: fast}"), r"steps_per_s\.v100='fast': must be a number"),
        (_yaml(JOB + ", steps_per_s: 3"), r"steps_per_s=3: must map kinds of device"),
        (_yaml(JOB + ", program: conv"), r"jobs\[0\]: program='conv': must be FAMILY/SIZE, like conv/tiny"),
        (_yaml(JOB + ", spread_steps_per_s: {v100: 1}"), r"spread_steps_per_s=.*needs steps_per_s too"),
    ],
)
def test_a_mistake_in_yaml_is_named_with_its_place(tmp_path: Path, cluster: Cluster, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _write(tmp_path, "t.yaml", text).sample(0, cluster)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "a,A3C,zero,10,,\n", r"t\.csv:2: gang='zero': must be a number"),
        (HEAD + "a,A3C,1,10,,\nb,mine,1,10,nan,\n", r"t\.csv:3: steps_per_s\.k80='nan': must be finite"),
        (HEAD + "a,mine,1,10,1,-2\n", r"t\.csv:2: steps_per_s\.v100='-2': must be 0 or more"),
        (HEAD + "a,A3D,1,10,,\n", r"t\.csv:2: job_type='A3D': .*did you mean 'A3C'"),
        (HEAD + "a,A3C,1,,,\n", r"t\.csv:2: num_steps=None: must be given"),
        (HEAD + "a,A3C,1,10\n", r"t\.csv:2=.*has 4 cells, the header names 6"),
        (HEAD + ",A3C,1,10,,\n", r"t\.csv:2: name=None: must be given"),
        (HEAD.replace("gang", "gangs") + "a,A3C,1,10,,\n", r"t\.csv:2='gangs': unknown key; did you mean 'gang'"),
        (HEAD.replace("k80", "k8") + "a,A3C,1,10,5,\n", r"t\.csv:2: steps_per_s='k8': is no kind of device; did you mean 'k80'"),
        ("tenant,weight\na,1\na,2\n", r"t\.csv:3: weight='2': tenant 'a' has weight 1 at .*t\.csv:2; keep one"),
        ("tenant,job,job_type,num_steps\na,x,A3C,1\nb,x,A3C,1\n", r"t\.csv:3: name='x': another job has this name, at .*t\.csv:2"),
        ("job_type\n", r"t\.csv:1='job_type': the header lacks the column 'tenant'"),
        ("", "workload.path=.*is empty"),
        ("tenant\n", "has no tenants"),
    ],
)
def test_a_mistake_in_csv_is_named_with_its_line(tmp_path: Path, cluster: Cluster, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _write(tmp_path, "t.csv", text).sample(0, cluster)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"workload.path=.*no such file"):
        TenantsFile(path=str(tmp_path / "none.yaml")).resolve()
    with pytest.raises(ConfigError, match=r"workload.path='t.json': must end in .yaml"):
        TenantsFile(path="t.json")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(ConfigError, match=r"workload.path=.*cannot be read"):
        TenantsFile(path=str(tmp_path / "d.csv")).sample(0, cluster)
    (tmp_path / "latin.csv").write_bytes(b"tenant\n\xe9\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text"):
        TenantsFile(path=str(tmp_path / "latin.csv")).sample(0, cluster)
    with pytest.raises(ConfigError, match=r"workload.provenance='guess'"):
        TenantsFile(path="t.csv", provenance="guess")
