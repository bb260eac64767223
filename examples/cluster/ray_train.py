"""Train a run on the machines of a Ray cluster: Ray starts one torchrun on each of them.

    ray job submit --working-dir . -- python ray_train.py RUN OUT --machines 2 --gpus 8

RUN is a run file, and OUT a folder, both on a file system that all machines share.  If a machine
is lost, all start again, and the training continues.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import uuid

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


def address() -> str:
    """Return the host of this machine and a free port on it."""
    with socket.socket() as free:
        free.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"


def torchrun(endpoint: str, job: str, options: argparse.Namespace, machine: int) -> int:
    """Run torchrun on this machine, of which the first is the endpoint; return its exit code."""
    return subprocess.call(
        [
            "torchrun",
            f"--nnodes={options.machines}",
            f"--nproc-per-node={options.gpus or options.processes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={endpoint}",
            f"--rdzv-id={job}",
            f"--rdzv-conf=is_host={int(machine == 0)}",  # Ray's address may not be that of the name
            "--max-restarts=3",
            *("-m", "weft", "train", options.run, "--out", options.out, "--resume", "auto"),
        ]
    )


def main() -> int:
    """Start the training, again after each failure; return the exit code of the last start."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="run file")
    parser.add_argument("out", help="folder of the run")
    parser.add_argument("--machines", type=int, default=1, help="number of machines")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each machine")
    parser.add_argument("--processes", type=int, default=1, help="processes without GPUs")
    parser.add_argument("--starts", type=int, default=100, help="maximum number of starts")
    options = parser.parse_args()
    ray.init()
    code = 1
    for _ in range(options.starts):
        share = {"CPU": 1, **({"GPU": options.gpus} if options.gpus else {})}
        group = placement_group([share] * options.machines, strategy="STRICT_SPREAD")
        ray.get(group.ready())
        remote = [
            {
                "num_cpus": 1,
                "num_gpus": options.gpus,
                "max_retries": 0,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle),
            }
            for bundle in range(options.machines)
        ]
        try:
            endpoint = ray.get(ray.remote(address).options(**remote[0]).remote())
            start = ray.remote(torchrun)
            job = uuid.uuid4().hex
            codes = ray.get(
                [
                    start.options(**place).remote(endpoint, job, options, machine)
                    for machine, place in enumerate(remote)
                ]
            )
        except ray.exceptions.RayError as error:
            print(f"starting again: {error}", file=sys.stderr)
            continue
        finally:
            ray.util.remove_placement_group(group)
        code = max(codes)
        if code == 0:
            break
    return code


if __name__ == "__main__":
    sys.exit(main())
