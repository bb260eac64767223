"""Test that a training on two machines goes on after what happens to machines; needs root on Linux.

    python benchmarks/machines_drill.py --stops 30
    python benchmarks/machines_drill.py --only unshared worker

Two network namespaces, joined by a veth pair, stand for two machines, each with a host name and a
mount of its own.  On each, the same command starts torchrun and `weft train --resume auto`:

unshared    the machines have no common folder: refused at the start, before an update
shared      nothing happens: the reference for the same bits
worker      a worker is killed with SIGKILL: torchrun restarts all
agent       a torchrun is killed with SIGKILL, the other one stopped, and both started again
sizes       stopped and continued with one process, with 2 x 1, and with 2 x 2
stops       SIGTERM to both, again and again, each followed by the same command

Each run must end with the losses of one undisturbed process, to 1e-5 or to three times the rounding
of float32, which one process with another attention kernel shows (see rounding.py); `worker`,
`agent` and `stops` with the bits of `shared`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kill_drill import same, workers
from kill_drill_runs import write_run

NETWORK = "10.77.0"
PATIENCE = 600.0
"""Seconds without progress after which a run counts as hung."""
TOLERANCE = 1e-5
"""Least difference of a loss that counts."""
SETTINGS = ("--set=accumulate=4", "--set=evaluate.every=20", "--set=optimizer.groups=[]")


@dataclass
class Machine:
    """A network namespace that stands for a machine."""

    number: int
    shared: bool = True
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the namespace, and of the machine."""
        return f"weft-{os.getpid()}-{self.number}"

    @property
    def address(self) -> str:
        """Address in the network of both."""
        return f"{NETWORK}.{self.number}"

    def command(self, words: list[str], private: Path) -> list[str]:
        """Return a command that runs in the machine; a private folder is empty there."""
        script = f"hostname machine-{self.number}; "
        if not self.shared:
            script += f"mount -t tmpfs none {private}; "
        inside = ["unshare", "-u", "-m", "sh", "-c", script + 'exec "$@"', "sh", *words]
        return ["ip", "netns", "exec", self.name, *inside]


@contextmanager
def machines(count: int = 2) -> Iterator[list[Machine]]:
    """Make machines on one network, and remove them afterwards."""
    pair = [Machine(number) for number in range(1, count + 1)]
    try:
        for machine in pair:
            _ip("netns", "add", machine.name)
        ends = [word for m in pair for word in ("name", "veth", "netns", m.name)]
        _ip("link", "add", *ends[:4], "type", "veth", "peer", *ends[4:])
        for machine in pair:
            inside = ("-n", machine.name)
            _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", "veth")
            _ip(*inside, "link", "set", "veth", "up")
            _ip(*inside, "link", "set", "lo", "up")
        yield pair
    finally:
        for machine in pair:
            for process in machine.processes:
                if process.poll() is None:
                    process.kill()
            subprocess.run(["ip", "netns", "del", machine.name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Drill:
    """One run file, and the scenarios that train it."""

    def __init__(self, folder: Path, pair: list[Machine], stops: int, updates: int) -> None:
        """Write the run."""
        self.folder, self.pair, self.stops = folder, pair, stops
        self.run = write_run(folder, updates)
        self.last = f"checkpoints/{updates:06d}"
        self.began = time.monotonic()
        self.failed: list[str] = []
        self.port = 29500
        self.tolerance = TOLERANCE

    def report(self, words: str) -> None:
        """Print a line with the elapsed time."""
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", flush=True)

    def out(self, name: str) -> Path:
        """Return the folder of a run, in a folder that may be private to each machine."""
        path = self.folder / "work" / name
        path.parent.mkdir(exist_ok=True)
        return path

    def alone(self) -> None:
        """Train in one process with the same command, and again with other rounding."""
        for name, more in (("alone", ()), ("rounded", ("--set=kernels.attention=plain",))):
            command, log = [*self.train(name), *more], self.log(name)
            subprocess.run(command, stderr=log, env=self.environment(), check=True)
        rounding = self.difference("rounded")
        self.tolerance = max(TOLERANCE, 3 * rounding)
        self.report(f"alone: {len(self.losses('alone'))} validations, rounding {rounding:.1e}")

    def train(self, name: str) -> list[str]:
        """Return the command that is right at each start."""
        words = ["train", str(self.run), "--out", str(self.out(name)), *SETTINGS]
        return [sys.executable, "-m", "weft", *words, "--resume", "auto"]

    def environment(self) -> dict[str, str]:
        """Return the variables of the processes."""
        return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "veth"}

    def log(self, name: str) -> int:
        """Return a descriptor of the log of a run."""
        path = self.folder / f"{name}.log"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(self, name: str, machine: Machine, *, local: int = 1, restarts: int = 5) -> None:
        """Start torchrun and the training on a machine."""
        first = self.pair[0].address
        launch = [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2"),
            *(f"--nproc-per-node={local}", f"--max-restarts={restarts}", "--monitor-interval=0.2"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint={first}:{self.port}", f"--rdzv-id={name}"),
            f"--rdzv-conf=is_host={int(machine.number == 1)},timeout=300",
            f"--local-addr={machine.address}",
            *self.train(name)[1:],
        ]
        command = machine.command(launch, self.folder / "work")
        log = self.log(f"{name}-{machine.number}")
        machine.processes.append(
            subprocess.Popen(command, stdout=log, stderr=log, env=self.environment())
        )
        os.close(log)

    def both(self, name: str, *, local: int = 1, restarts: int = 5) -> None:
        """Start the training on both machines."""
        self.port += 1
        for machine in self.pair:
            self.start(name, machine, local=local, restarts=restarts)

    def codes(self) -> list[int]:
        """Wait until the training has ended on both machines; return their exit codes."""
        return [machine.processes[-1].wait(PATIENCE) for machine in self.pair]

    def newest(self, name: str) -> int:
        """Return the update of the newest checkpoint of a run."""
        names = [path.name for path in self.out(name).glob("checkpoints/[0-9]*")]
        return max((int(update) for update in names if update.isdecimal()), default=0)

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait; exit if it takes too long."""
        late = time.monotonic() + PATIENCE
        while not ready():
            if time.monotonic() > late:
                sys.exit(f"{what}: nothing in {PATIENCE:.0f} s; see {self.folder}")
            time.sleep(0.05)

    def worker(self, machine: Machine) -> int:
        """Wait for the process of a training on a machine, and return it."""
        agent = machine.processes[-1].pid
        self.until(lambda: bool(workers(agent)), "no worker")
        return workers(agent)[0]

    def expect(self, name: str, *, bits: bool = False) -> None:
        """Compare a run with the one that was not disturbed."""
        worst = self.difference(name)
        equal = worst <= self.tolerance
        words = f"{name}: difference of the losses from one process {worst:.1e}"
        if bits:
            files = [f"{self.last}/{kind}.safetensors" for kind in ("weights", "optimizer")]
            identical = all(same(self.out(name) / f, self.out("shared") / f) for f in files)
            words += ", the same bits as undisturbed" if identical else ", OTHER BITS"
            equal = equal and identical
        if not equal:
            self.failed.append(name)
        self.report(words if equal else f"FAILED: {words}")

    def difference(self, name: str) -> float:
        """Return the largest difference of a loss from one process; inf if one is missing."""
        mine, right = (self.losses(each) for each in (name, "alone"))
        if mine.keys() != right.keys():
            return math.inf
        return max(abs(mine[update] - right[update]) for update in right)

    def losses(self, name: str) -> dict[int, float]:
        """Return the loss of each validation of a run."""
        lines = (self.out(name) / "metrics.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return {e["update"]: e["nll"] for e in events if e["type"] == "valid"}

    def unshared(self) -> None:
        """Each machine sees a folder of its own."""
        self.pair[1].shared = False
        began = time.monotonic()
        self.both("unshared", restarts=0)
        codes = self.codes()
        self.pair[1].shared = True
        text = "".join((self.folder / f"unshared-{n}.log").read_text() for n in (1, 2))
        messages = text.count("error: the folder of the run is not shared")
        saved = self.newest("unshared")
        self.report(
            f"unshared: exit codes {codes} after {time.monotonic() - began:.0f} s, the message is"
            f" printed {messages} time(s), {saved} updates"
        )
        if not all(codes) or messages != 1 or saved:
            self.failed.append("unshared")

    def shared(self) -> None:
        """Nothing happens."""
        self.both("shared")
        self.codes()
        self.expect("shared")

    def killed_worker(self) -> None:
        """A worker of the second machine is killed."""
        self.both("worker")
        self.until(lambda: self.newest("worker") > 0, "worker")
        os.kill(self.worker(self.pair[1]), signal.SIGKILL)
        self.codes()
        self.expect("worker", bits=True)

    def killed_agent(self) -> None:
        """The torchrun of the second machine is killed; a scheduler then stops the first one."""
        self.both("agent")
        self.until(lambda: self.newest("agent") > 0, "agent")
        self.pair[1].processes[-1].kill()
        self.terminate()
        self.both("agent")
        self.codes()
        self.expect("agent", bits=True)

    def sizes(self) -> None:
        """One process, then two machines with one each, then with two each."""
        with subprocess.Popen(
            self.train("sizes"), stderr=self.log("sizes"), env=self.environment()
        ) as process:
            self.until(lambda: self.newest("sizes") > 0, "sizes")
            process.terminate()
        done = [self.newest("sizes")]
        for local in (1, 2):
            self.both("sizes", local=local)
            if local == 1:
                self.until(lambda: self.newest("sizes") > done[0] + 4, "sizes")
                self.terminate()
                done.append(self.newest("sizes"))
            self.codes()
        self.report(f"sizes: continued after updates {done}")
        self.expect("sizes")

    def terminate(self) -> float:
        """Send SIGTERM to both machines; return the seconds until both have ended."""
        began = time.monotonic()
        for machine in self.pair:
            with suppress(ProcessLookupError):
                machine.processes[-1].send_signal(signal.SIGTERM)
        self.codes()
        return time.monotonic() - began

    def stopped(self) -> None:
        """SIGTERM to both, and the same command again."""
        rng, slowest, after = random.Random(3), 0.0, [0]
        for _ in range(self.stops):
            self.both("stops")
            goal = after[-1] + 1
            self.until(
                lambda goal=goal: self.newest("stops") >= goal or self.ended(),  # type: ignore[misc]
                "stops",
            )
            time.sleep(rng.uniform(0.0, 0.5))
            took = self.terminate()
            slowest = max(slowest, took)
            after.append(self.newest("stops"))
            self.report(
                f"stop {len(after) - 1}/{self.stops} after update {after[-1]}, ended within"
                f" {took:.1f} s, load {os.getloadavg()[0]:.0f}"
            )
        self.both("stops")
        self.codes()
        self.report(
            f"stops: {self.stops} times SIGTERM after updates {after[1:]}, the slowest end took"
            f" {slowest:.1f} s"
        )
        self.expect("stops", bits=True)

    def ended(self) -> bool:
        """Return whether the training has ended on both machines."""
        return all(machine.processes[-1].poll() is not None for machine in self.pair)


SCENARIOS: dict[str, Callable[[Drill], None]] = {
    "unshared": Drill.unshared,
    "shared": Drill.shared,
    "worker": Drill.killed_worker,
    "agent": Drill.killed_agent,
    "sizes": Drill.sizes,
    "stops": Drill.stopped,
}


def main() -> None:
    """Run the scenarios, and exit with 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stops", type=int, default=30, help="number of SIGTERMs")
    parser.add_argument("--updates", type=int, default=200, help="updates of the run")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=[*SCENARIOS])
    parser.add_argument("--folder", type=Path, help="working folder, which is kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, machines() as pair:
        folder = (options.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        drill = Drill(folder, pair, options.stops, options.updates)
        drill.alone()
        for scenario in options.only:
            SCENARIOS[scenario](drill)
        drill.report(f"failed: {', '.join(drill.failed)}" if drill.failed else "all as expected")
    sys.exit(bool(drill.failed))


if __name__ == "__main__":
    main()
