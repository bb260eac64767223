"""Executors of clusters: Ray, Dask and Slurm.  Their workers must see the folders of the command.

The address is that of a cluster that runs; what a worker does is the same as in a local process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, JsonValue

from ....specs.findings import InputError
from .executor import ATTEMPTS, Cluster, ExecutorSettings, LostError, Opened, library
from .local import LocalExecutor

WAIT = 20
"""Seconds to wait for a cluster that does not answer."""
MOST = 100
"""Units that are submitted to Slurm at a time, unless the user says how many."""


def unreachable(engine: str, address: str, error: BaseException) -> InputError:
    """Return the error of a cluster that does not answer."""
    return InputError(
        f"cannot reach {engine} at '{address}': {str(error).splitlines()[0]:.200}",
        location="--on",
        help="start it, or give the address that it prints when it starts",
    )


class Ray(ExecutorSettings):
    """A Ray cluster; a worker that is lost is replaced by Ray."""

    type: Literal["ray"] = "ray"
    short: ClassVar[str] = "address"
    address: str = "auto"
    """Address of the head, such as `10.0.0.1:6379`; `auto` is the cluster of this machine."""
    cpus: float = Field(default=1, gt=0)
    """Processor cores of a unit."""
    gpus: float = Field(default=0, ge=0)
    """GPUs of a unit."""

    def open(self, processes: int | None) -> Opened:
        """Connect to the cluster.

        Raises:
            InputError: Ray is not installed, or the cluster does not answer.
        """
        ray = library("ray", "ray")
        try:
            ray.init(self.address, log_to_driver=False, configure_logging=False, namespace="weft")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise unreachable("Ray", self.address, error) from error
        errors = ray.exceptions
        lost = (
            errors.RaySystemError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
            errors.LocalRayletDiedError,
        )
        unit = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=ATTEMPTS - 1)(_called)

        def start(work: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = unit.remote(str(Path.cwd()), work).future()
            return future

        units = int(ray.cluster_resources().get("CPU", 1) // self.cpus)
        return Opened(Cluster(start, lost, ray.shutdown), processes or 2 * max(1, units))


class Dask(ExecutorSettings):
    """A Dask cluster; a worker that is lost is replaced by Dask."""

    type: Literal["dask"] = "dask"
    short: ClassVar[str] = "address"
    address: str
    """Address of the scheduler, such as `tcp://10.0.0.1:8786`."""

    def open(self, processes: int | None) -> Opened:
        """Connect to the cluster.

        Raises:
            InputError: Dask is not installed, or the scheduler does not answer.
        """
        distributed = library("distributed", "dask")
        try:
            client = distributed.Client(self.address, timeout=WAIT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise unreachable("Dask", self.address, error) from error
        pool = client.get_executor(pure=False)
        threads = sum(client.nthreads().values())
        # A thread of a Dask worker cannot receive signals, so a process of its own does the unit.
        start = partial(pool.submit, _in_process, str(Path.cwd()))
        executor = Cluster(start, (distributed.KilledWorker,), client.close)
        return Opened(executor, processes or 2 * max(1, threads))


class Slurm(ExecutorSettings):
    """Slurm, through submitit: each unit is a job; one whose node is lost is submitted again."""

    type: Literal["slurm"] = "slurm"
    short: ClassVar[str] = "partition"
    partition: str | None = None
    """Partition; by default that of the cluster."""
    minutes: int = Field(default=1440, ge=1)
    """Time limit of a unit."""
    cpus: int = Field(default=1, ge=1)
    """Processor cores of a unit."""
    gpus: int = Field(default=0, ge=0)
    """GPUs of a unit."""
    memory: float = Field(default=8, gt=0)
    """Memory of a unit in GB."""
    requeue: bool = True
    """Whether Slurm queues a unit again that was preempted, or whose node failed."""
    parameters: dict[str, JsonValue] = Field(default={})
    """Further options of sbatch, such as `{"account": "mt", "qos": "low"}`."""
    folder: str = "outputs/.slurm"
    """Folder of scripts and logs, which all nodes see."""
    cluster: Literal["slurm", "local", "debug"] = "slurm"
    """`local` runs units in processes of this machine, and `debug` one after another in this
    process, to test."""

    def open(self, processes: int | None) -> Opened:
        """Return an executor of jobs.

        Raises:
            InputError: submitit is not installed, or this machine cannot submit jobs.
        """
        submitit = library("submitit", "slurm")
        try:
            engine = submitit.AutoExecutor(folder=Path(self.folder).resolve(), cluster=self.cluster)
        except RuntimeError as error:
            raise unreachable("Slurm", self.partition or "its default", error) from error
        engine.update_parameters(
            name="weft",
            timeout_min=self.minutes,
            cpus_per_task=self.cpus,
            gpus_per_node=self.gpus,
            mem_gb=self.memory,
            slurm_additional_parameters={
                "requeue" if self.requeue else "no-requeue": True,
                **self.parameters,
            },
            **({"slurm_partition": self.partition} if self.partition else {}),
        )
        at_once = 1 if self.cluster == "debug" else processes or MOST
        return Opened(
            _Submitting(engine, submitit.core.utils.UncompletedJobError, at_once), at_once
        )


class _Submitting(Cluster):
    """Jobs of Slurm, each followed by a thread."""

    def __init__(self, engine: Any, lost: type[Exception], at_once: int) -> None:
        self._threads, self._ending = ThreadPoolExecutor(at_once, "weft submitter"), False
        self._jobs, self._engine = set[Any](), engine
        self._uncompleted = lost
        super().__init__(self._started, (), self._end)

    def _started(self, work: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(self._followed, work)

    def _followed(self, work: Callable[[], Any]) -> Any:
        """Submit a unit, again if its node is lost, and return its outcome."""
        problem = ""
        for _ in range(ATTEMPTS):
            if self._ending:
                raise CancelledError
            job = self._engine.submit(work)
            self._jobs.add(job)
            try:
                return job.result()
            except self._uncompleted as error:
                problem = str(error).splitlines()[0]
            finally:
                self._jobs.discard(job)
        raise LostError(problem)

    def _end(self) -> None:
        self._ending = True
        for job in list(self._jobs):
            job.cancel()
        self._threads.shutdown(cancel_futures=True)


def _called(folder: str, work: Callable[[], Any]) -> Any:
    """Do a unit in a worker of a cluster, in the folder of the command."""
    os.chdir(folder)
    return work()


def _in_process(folder: str, work: Callable[[], Any]) -> Any:
    """Do a unit in a process that a worker of Dask keeps."""
    return _processes().submit(_called, folder, work).result()


@cache
def _processes() -> Executor:
    """Return the processes of a worker of Dask, one for each of its threads."""
    from distributed import get_worker  # noqa: PLC0415 - in a worker of Dask alone

    return LocalExecutor(get_worker().state.nthreads, pinned=False)
