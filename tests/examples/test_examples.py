"""Examples: columns, a cluster, and the recipe of Multi30k."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser
from weft.examples import multi30k_recipe as recipe
from weft.examples.columns import main
from weft.runtime.cli.common.parameters import overridden
from weft.runtime.data.readers.reader_settings import LinesSettings
from weft.runtime.train.plan import load_run
from weft.runtime.train.run import Run

TREES = ("(S (DT the) (NN sun))", "(S (NN rain) (VB falls))", "(S (NN leaf))")
ROWS = [
    {"text": "the sun", "tags": "DT NN"},
    {"text": "rain falls", "tags": "NN VB"},
    {"text": "leaf", "tags": "NN"},
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_validation_trees_are_the_last_of_the_training_trees(tmp_path: Path) -> None:
    """The reported test data take no part in choosing a checkpoint."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.trees").write_text("\n".join(TREES) + "\n", encoding="utf-8")
    files = [f"{split}={tmp_path / split}.trees" for split in ("train", "test")]

    main(["tags", str(tmp_path), *files, "--held-out", "1"])

    assert rows_of(tmp_path / "train.jsonl") == ROWS[:2]
    assert rows_of(tmp_path / "valid.jsonl") == ROWS[2:]
    assert rows_of(tmp_path / "test.jsonl") == ROWS


def test_a_given_validation_file_is_used_whole(tmp_path: Path) -> None:
    """Then no training tree is held out."""
    for split in ("train", "valid"):
        (tmp_path / f"{split}.trees").write_text("\n".join(TREES) + "\n", encoding="utf-8")
    files = [f"{split}={tmp_path / split}.trees" for split in ("train", "valid")]

    main(["tags", str(tmp_path), *files, "--held-out", "1"])

    assert rows_of(tmp_path / "train.jsonl") == rows_of(tmp_path / "valid.jsonl") == ROWS


def test_passages_of_genres_do_not_cross_their_borders(tmp_path: Path) -> None:
    """24 essays and 5 letters give 12 and 2 passages of two; the last essay is held out."""
    trees = tmp_path / "t.trees"
    trees.write_text("".join(f"(TOP (S (NN w{n})))\n" for n in range(29)), encoding="utf-8")

    main(["genres", str(tmp_path), f"train={trees}:essay=1,letter=25", "--passage", "2"])

    train, valid = rows_of(tmp_path / "train.jsonl"), rows_of(tmp_path / "valid.jsonl")
    assert [row["genre"] for row in train] == ["essay"] * 11 + ["letter"] * 2
    assert train[-1]["text"] == "w26 w27"
    assert valid == [{"text": "w22 w23", "genre": "essay"}]


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


FIELDS = {
    "JobSet": {"apiVersion": "", "kind": "", "metadata": "Metadata", "spec": "JobSetSpec"},
    "Metadata": {"name": ""},
    "JobSetSpec": {
        "failurePolicy": "FailurePolicy",
        "network": "Network",
        "replicatedJobs": "ReplicatedJob",
    },
    "FailurePolicy": {"maxRestarts": 0},
    "Network": {"enableDNSHostnames": True},
    "ReplicatedJob": {"name": "", "replicas": 0, "template": "JobTemplate"},
    "JobTemplate": {"spec": "JobSpec"},
    "JobSpec": {
        "completionMode": "",
        "completions": 0,
        "parallelism": 0,
        "backoffLimit": 0,
        "template": "PodTemplate",
    },
    "PodTemplate": {"spec": "PodSpec"},
    "PodSpec": {
        "restartPolicy": "",
        "terminationGracePeriodSeconds": 0,
        "containers": "Container",
        "volumes": "Volume",
    },
    "Container": {
        "name": "",
        "image": "",
        "command": "",
        "resources": "Resources",
        "volumeMounts": "VolumeMount",
    },
    "Resources": {"limits": "Limits"},
    "Limits": {"nvidia.com/gpu": 0},
    "VolumeMount": {"name": "", "mountPath": ""},
    "Volume": {"name": "", "persistentVolumeClaim": "Claim", "emptyDir": "EmptyDir"},
    "Claim": {"claimName": ""},
    "EmptyDir": {"medium": ""},
}
"""Fields of the references of JobSet v1alpha2 and of Kubernetes 1.31, as far as they are used: an
example of a value, or the name of an object or of the objects in a list."""


def misfits(value: Any, form: Any, path: str = "") -> list[str]:
    """Return where a value differs from the reference: unknown fields and wrong types."""
    if isinstance(value, list):
        return [line for entry in value for line in misfits(entry, form, path)]
    if form not in FIELDS or form == "":
        return [] if type(value) is type(form) else [path]
    fields = FIELDS[form]
    return [
        line
        for name, entry in value.items()
        for line in (
            misfits(entry, fields[name], f"{path}/{name}") if name in fields else [f"{path}/{name}"]
        )
    ]


def test_kubernetes_knows_every_field_of_the_job() -> None:
    """Its server would refuse others; a misspelt one and a number as text are noticed."""
    job = yaml.safe_load((ROOT / "kubernetes.yaml").read_text())

    assert misfits(job, "JobSet") == []
    pods = job["spec"]["replicatedJobs"][0]["template"]["spec"]
    pods |= {"completion": 2, "parallelism": "2"}
    where = "/spec/replicatedJobs/template/spec"
    assert sorted(misfits(job, "JobSet")) == [f"{where}/completion", f"{where}/parallelism"]
    assert pods["template"]["spec"]["restartPolicy"] in ("Never", "OnFailure")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["slurm.sh", "skypilot.yaml:setup", "skypilot.yaml:run"])
def test_scripts_of_templates_are_bash(name: str) -> None:
    """Also the branches that no test reaches."""
    file, _, key = name.partition(":")
    text = (ROOT / file).read_text()
    script = yaml.safe_load(text)[key] if key else text

    subprocess.run(["bash", "-n"], input=script.encode(), check=True)


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


def run_of(step: recipe.Step) -> Run:
    """Return the run of a step with its settings."""
    words = step.words
    given = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    name = next(word for word in words if word.startswith("multi30k-"))
    return load_run(name, overridden(given))[0]


def lines_of(run: Run) -> list[dict[str, tuple[str, ...]]]:
    """Return the files of each part of a run's data, by column."""
    parts = (run.data.train, run.data.valid, *run.data.test.values())
    return [part.settings.groups for part in parts if isinstance(part.settings, LinesSettings)]


def test_each_step_reads_what_an_earlier_one_writes(tmp_path: Path) -> None:
    """Teachers, distilled lines, the tokenizer, and the weights to start from."""
    corpus = {f"{part}.{one}.gz" for part in recipe.PARTS for one in ("en", "de")}
    made: set[str] = set()
    for chains in recipe.stages(tmp_path, recipe.UPDATES, seed=3):
        before = set(made)
        for chain in chains:
            own = set(before)
            for step in chain:
                run = run_of(step)
                assert run.data.root == str(tmp_path / "data")
                words = [run.start.checkpoint if run.start else "", *step.words]
                read = {Path(word).parent.name for word in words if word.endswith("averaged")}
                read |= {
                    name.split("/")[0]
                    for lines in lines_of(run)
                    for names in lines.values()
                    for name in names
                    if name not in corpus
                }
                assert read <= own
                out = Path(step.words[step.words.index("--out") + 1])
                own.add(out.name)
                made.add(out.name)
    assert made == {"first", "second", "backward", "forward", "student"}


def test_the_models_have_different_seeds_in_all_repetitions(tmp_path: Path) -> None:
    """The repetitions share no teacher."""
    seeds = [
        run_of(step).seed
        for seed in (1, 2, 3)
        for chains in recipe.stages(tmp_path, recipe.UPDATES, seed)
        for chain in chains
        for step in chain
        if "train" in step.words and step.name != "student"
    ]

    assert len(set(seeds)) == len(seeds) == 9


def test_the_backward_model_reads_german(tmp_path: Path) -> None:
    """All of its parts are exchanged, and nothing of the others is."""
    steps = [
        step
        for chains in recipe.stages(tmp_path, recipe.UPDATES, 1)
        for chain in chains
        for step in chain
    ]

    for step in steps:
        language = "de" if "backward" in step.name else "en"
        parts = lines_of(run_of(step))
        assert len(parts) == 3
        assert all(lines["source"][0].endswith(f".{language}.gz") for lines in parts)
        assert not any(lines["target"][0].endswith(f".{language}.gz") for lines in parts)


@pytest.mark.integration
def test_a_failed_step_is_repeated_and_a_finished_one_is_not(tmp_path: Path) -> None:
    """Their seconds add up over the calls."""
    count = f"open({str(tmp_path / 'calls')!r}, 'a').write('x')"
    wanted = f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'wanted')!r}))"
    chain = [recipe.Step("one", ["-c", count]), recipe.Step("two", ["-c", wanted])]

    with pytest.raises(SystemExit, match=r"two failed: see .*two\.log"):
        recipe.work(chain, tmp_path, recipe.Log(tmp_path / "seconds.json", {"seed": 1}))
    first = json.loads((tmp_path / "seconds.json").read_text())
    (tmp_path / "wanted").touch()
    recipe.work(chain, tmp_path, recipe.Log(tmp_path / "seconds.json", {"seed": 1}))

    last = json.loads((tmp_path / "seconds.json").read_text())
    assert first["done"] == ["one"]
    assert last["done"] == ["one", "two"]
    assert (tmp_path / "calls").read_text() == "x"
    assert last["seconds"]["one"] == first["seconds"]["one"]
    assert last["seconds"]["two"] > first["seconds"]["two"] > 0
    with pytest.raises(SystemExit, match=r"was begun with \{'seed': 1\}: choose another"):
        recipe.Log(tmp_path / "seconds.json", {"seed": 2})


def test_a_checkpoint_that_was_not_completed_is_not_continued(tmp_path: Path) -> None:
    """A process was killed while it wrote the first one."""
    checkpoints = tmp_path / "one/checkpoints"
    (checkpoints / ".000150.partial").mkdir(parents=True)

    assert "--resume" not in recipe.training(tmp_path, "one", "multi30k-rotary", 9, {}).words
    (checkpoints / "000150").mkdir()
    assert "--resume" in recipe.training(tmp_path, "one", "multi30k-rotary", 9, {}).words


def test_a_missing_corpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    monkeypatch.setattr(sys, "argv", ["recipe", str(tmp_path), str(tmp_path / "out")])

    with pytest.raises(SystemExit, match=r"train\.en\.gz"):
        recipe.main()
    assert not (tmp_path / "out").exists()
