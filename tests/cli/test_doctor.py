"""`qkv doctor`: facts that are true of this machine, and sentences that follow from them."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch

from qkv.cli.doctor import MachineReport, diagnose, doctor, examine
from qkv.machine import Capacity, Cores, avoid_broken_amx, cpu, disk, find_packages, memory
from qkv.machine.packages import DEVELOPMENT_EXTRAS, EXTRAS
from qkv.machine.resources import cgroup_cpu_quota, cgroup_memory

ALONE = "import sys; from qkv.cli.doctor import doctor; sys.exit(doctor(json=True))"


@pytest.fixture(scope="module")
def report() -> MachineReport:
    return examine()


def test_people_read_what_there_is_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(json=False) == 0
    captured = capsys.readouterr()
    for title in ("CPU", "cores", "instructions", "memory", "cache", "Python", "torch", "float32"):
        assert f"\n{title} " in f"\n{captured.out}"
    assert captured.out.split("\n")[-2].startswith("qkv works here")
    assert "measuring" in captured.err


def test_json_is_one_object_with_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(json=True) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    diagnosis = json.loads(out)
    assert diagnosis["ok"] is True
    assert diagnosis["broken"] == []
    assert diagnosis["torch"]["version"] == torch.__version__
    assert diagnosis["torch"]["threads"] == torch.get_num_threads()
    assert diagnosis["cache"].startswith(os.environ["QKV_CACHE"])
    assert diagnosis["speed"]["float32_gflops"] > 0.1


def test_eight_bits_are_measured_where_they_work(report: MachineReport) -> None:
    from qkv.engine.optimized import int8_supported

    assert report.speed is not None
    assert (report.speed.int8_gops is not None) == int8_supported()
    narrow = bool(torch.cpu.get_capabilities().get("avx_vnni"))  # too narrow for torch's products
    assert report.cpu.features["VNNI"] == (torch.cpu._is_vnni_supported() or narrow)


def test_a_broken_torch_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text('raise ImportError("libtorch_cpu.so: no such file")\n')
    process = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert process.returncode == 1, process.stderr
    diagnosis = json.loads(process.stdout)
    assert (diagnosis["ok"], diagnosis["torch"], diagnosis["speed"]) == (False, None, None)
    (line,) = diagnosis["broken"]
    assert line.startswith("torch: importing it fails: libtorch_cpu.so: no such file; run: ")
    assert "-m pip install 'torch>=2.13'" in line


def test_a_package_that_is_absent_or_too_old_says_so() -> None:
    least = ["numpy>=999.1", "no-such-package", "numpy>=1.0"]
    old, absent, good = find_packages(least)
    assert old.problem == (
        f"version {metadata.version('numpy')} is installed, 999.1 or later is needed"
    )
    assert absent.problem == "it is not installed"
    assert good.problem is None


def test_a_missing_extra_breaks_nothing_and_tells_how_to_get_it(report: MachineReport) -> None:
    lines = ['no-such-arrow>=15; extra == "parquet"', 'no-such-test; extra == "test"']
    diagnosis = diagnose(
        replace(report, packages=tuple(find_packages(lines)), executable="/a b/python")
    )
    assert diagnosis.broken == []
    assert diagnosis.missing == [
        "no-such-arrow, for .parquet files; run: '/a b/python' -m pip install 'no-such-arrow>=15'"
    ]
    assert "only the above is missing" in diagnosis.verdict


def test_every_extra_of_the_package_is_told_what_for() -> None:
    extras = metadata.metadata("qkv").get_all("Provides-Extra")
    assert {*EXTRAS, *DEVELOPMENT_EXTRAS} == set(extras or ())


def test_what_is_scarce_or_slow_is_noted(report: MachineReport) -> None:
    assert report.torch is not None
    poor = replace(
        report,
        cores=Cores(logical=7, affinity=5, quota=1.5),
        torch=replace(report.torch, threads=5),
        memory=Capacity(3_000_000_000, 70_000_000),
        encoding="latin-1",
        shows_signs=False,
    )
    notes = "\n".join(diagnose(poor).notes)
    assert "5 threads where 2 can run at once; set OMP_NUM_THREADS=2" in notes
    assert "only 70 MB of memory are free" in notes
    assert "latin-1" in notes


def test_running_without_being_installed_is_told(report: MachineReport) -> None:
    diagnosis = diagnose(replace(report, packages=(), installed=False))
    assert "without being installed" in diagnosis.broken[0]
    assert diagnosis.verdict.startswith("qkv cannot work here")


def write(system: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(content)
    return system


def test_the_limits_of_a_container_count(tmp_path: Path) -> None:
    new = {
        "proc/self/cgroup": "0::/box/inner\n",
        "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 7000 kB\n",
        "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/box/inner/memory.max": "5120000\n",
        "sys/fs/cgroup/box/inner/memory.current": "120000\n",
    }
    system = write(tmp_path / "new", new)
    assert cgroup_cpu_quota(system) == 1.5
    assert cgroup_memory(system) == (5_120_000, 120_000)
    assert memory(system) == Capacity(5_120_000, 5_000_000)
    old = {
        "proc/self/cgroup": "4:cpu,cpuacct:/box\n3:memory:/box\n",
        "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "17\n",
    }
    system = write(tmp_path / "old", old)
    assert cgroup_cpu_quota(system) == 3
    assert cgroup_memory(system) is None


def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert cgroup_cpu_quota(tmp_path) is None
    assert cgroup_memory(tmp_path) is None
    assert memory(tmp_path).free is None
    assert cpu(tmp_path).name


def test_the_name_of_the_processor_is_the_first_cores(tmp_path: Path) -> None:
    cores = "processor : 0\nmodel name : A: B 7\n\nprocessor : 1\nmodel name : other\n"
    assert cpu(write(tmp_path, {"proc/cpuinfo": cores})).name == "A: B 7"


@pytest.mark.parametrize(
    ("flags", "level", "limit"),
    [("fpu amx_tile", 0x1C, "AVX10_1_512"), ("fpu amx_tile", 0x20, None), ("fpu", 0x1C, None)],
)
def test_amx_without_tile_sizes_is_avoided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, level: int, limit: str | None
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")  # so that it is restored
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    info = f"processor : 0\ncpuid level : {level}\nflags : {flags}\n\nprocessor : 1\n"
    avoid_broken_amx(write(tmp_path, {"proc/cpuinfo": info}))
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == limit


def test_the_disk_of_a_folder_not_yet_made_is_that_of_the_folder_around_it(tmp_path: Path) -> None:
    assert disk(tmp_path / "not" / "yet").total == shutil.disk_usage(tmp_path).total


@pytest.mark.parametrize(("quota", "usable"), [(None, 5), (0.5, 1), (2.0, 2), (2.5, 3), (9.0, 5)])
def test_a_quota_bounds_the_threads(quota: float | None, usable: int) -> None:
    assert Cores(logical=7, affinity=5, quota=quota).usable == usable
