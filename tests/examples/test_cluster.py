"""The templates for clusters start what they say, and queue a stopped training again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser

ROOT = Path(__file__).parents[2] / "examples/cluster"
TRAIN = ["-m", "weft", "train"]
yaml = pytest.importorskip("yaml", reason="pyyaml is an extra")


def options_of(words: list[str]) -> Any:
    """Return what torchrun reads from the words after its name."""
    return get_args_parser().parse_args(words)


def write_program(path: Path, text: str) -> None:
    """Write a program that stands for one of Slurm's."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """Return an environment with programs that stand for Slurm, and a torchrun that records."""
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "srun", 'exec "$@"')
    write_program(
        programs / "scontrol",
        'if [ "$1" = show ]; then printf "first\\nsecond\\n"; exit; fi\n'
        f'echo "$@" > {tmp_path}/again',
    )
    write_program(
        programs / "torchrun",
        f"trap 'sleep 0.2; echo saved > {tmp_path}/saved; exit 143' TERM\n"
        f'printf "%s\\n" "$@" > {tmp_path}/words.partial\n'
        f"mv {tmp_path}/words.partial {tmp_path}/words\n"
        'if [ -n "$CODE" ]; then exit "$CODE"; fi\n'
        "for _ in $(seq 600); do sleep 0.05; done",
    )
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "1234",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_NNODES": "2",
        "PROCESSES": "4",
    }


def started(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the script of Slurm."""
    words = ["bash", str(ROOT / "slurm.sh"), "/work/run.json", "/work/a run"]
    return subprocess.Popen(words, env=environment)


@pytest.mark.integration
@pytest.mark.parametrize("code", [0, 3])
def test_slurm_ends_with_the_code_of_the_training(
    code: int, slurm: dict[str, str], tmp_path: Path
) -> None:
    """A training that ended by itself, well or not, is not queued again."""
    assert started({**slurm, "CODE": str(code)}).wait(60) == code

    words = (tmp_path / "words").read_text().splitlines()
    options = options_of(words)
    assert (options.nnodes, options.nproc_per_node, options.rdzv_id) == ("2", "4", "1234.0")
    assert options.rdzv_endpoint == "first:29734"
    rest = ["train", "/work/run.json", "--out", "/work/a run", "--resume", "auto"]
    assert [options.training_script, *options.training_script_args] == ["weft", *rest]
    assert not (tmp_path / "again").exists()


@pytest.mark.integration
def test_slurm_queues_a_stopped_training_again(slurm: dict[str, str], tmp_path: Path) -> None:
    """Only after the training has saved its checkpoint."""
    with started({**slurm, "CODE": ""}) as process:
        while not (tmp_path / "words").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert (tmp_path / "saved").exists()
    assert (tmp_path / "again").read_text() == "requeue 1234\n"


def test_the_pods_of_kubernetes_are_the_machines_of_torchrun() -> None:
    """Their number, the name of the first one, and the command of each."""
    job = yaml.safe_load((ROOT / "kubernetes.yaml").read_text())
    [group] = job["spec"]["replicatedJobs"]
    pods = group["template"]["spec"]
    [container] = pods["template"]["spec"]["containers"]
    program, *words = container["command"]

    options = options_of(words)

    assert (job["apiVersion"], job["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert program == "torchrun"
    assert int(options.nnodes) == pods["parallelism"] == pods["completions"]
    assert int(options.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    name = job["metadata"]["name"]
    assert options.rdzv_endpoint == f"{name}-{group['name']}-0-0.{name}:29500"
    assert options.training_script_args[-2:] == ["--resume", "auto"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pods["template"]["spec"]["volumes"]}
    out = options.training_script_args[options.training_script_args.index("--out") + 1]
    assert out.startswith(container["volumeMounts"][0]["mountPath"])


@pytest.mark.integration
def test_skypilot_runs_torchrun_on_each_machine(tmp_path: Path) -> None:
    """Its script, with the variables that SkyPilot sets, and a torchrun that records."""
    task = yaml.safe_load((ROOT / "skypilot.yaml").read_text())
    write_program(tmp_path / "torchrun", f'printf "%s\\n" "$@" > {tmp_path}/words')
    variables = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NUM_NODES": str(task["num_nodes"]),
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
        "SKYPILOT_TASK_ID": "sky-1",
    }

    subprocess.run(["bash", "-euc", task["run"]], env=variables, check=True)

    options = options_of((tmp_path / "words").read_text().splitlines())
    assert (options.nnodes, options.rdzv_endpoint) == ("2", "10.0.0.1:29500")
    assert options.training_script_args[-2:] == ["--resume", "auto"]
    [mounted] = task["volumes"]
    assert all(word.startswith(mounted) for word in options.training_script_args if "/" in word)


RAY = '''
"""What the template uses of Ray, on one machine."""
import types, sys

class RayError(Exception):
    """An error of Ray."""

class _Ready:
    def ready(self):
        return True

class _Remote:
    def __init__(self, function):
        self.function = function
    def options(self, **options):
        return self
    def remote(self, *arguments):
        return self.function(*arguments)

def init(): ...
def get(value):
    return value
def remote(function):
    return _Remote(function)
def _module(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module
    return module

exceptions = _module("ray.exceptions", RayError=RayError)
util = _module("ray.util", get_node_ip_address=lambda: "10.0.0.1",
    remove_placement_group=lambda group: None)
_module("ray.util.placement_group", placement_group=lambda bundles, strategy: _Ready())
_module("ray.util.scheduling_strategies", PlacementGroupSchedulingStrategy=lambda *words: None)
'''


@pytest.mark.integration
def test_ray_starts_torchrun_on_each_machine_until_it_succeeds(tmp_path: Path) -> None:
    """With a module that stands for Ray: two machines, and a first start that fails."""
    (tmp_path / "ray.py").write_text(RAY)
    write_program(
        tmp_path / "torchrun",
        f'printf "%s " "$@" >> {tmp_path}/words; echo >> {tmp_path}/words\n'
        f"[ $(wc -l < {tmp_path}/words) -gt 2 ]",
    )
    variables = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
    }
    words = [str(ROOT / "ray_train.py"), "/work/run.json", "/work/run", "--machines", "2"]

    subprocess.run([sys.executable, *words, "--gpus", "8"], env=variables, check=True)

    starts = [options_of(line.split()) for line in (tmp_path / "words").read_text().splitlines()]
    assert [start.nnodes for start in starts] == ["2"] * 4
    assert [len({start.rdzv_id for start in part}) for part in (starts, starts[:2])] == [2, 1]
    assert len({start.rdzv_endpoint for start in starts[:2]}) == 1
    assert starts[0].training_script_args[-2:] == ["--resume", "auto"]
