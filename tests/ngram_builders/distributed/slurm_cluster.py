"""A Slurm cluster of one machine, with a controller and a node of its own: for tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1,sched_min_interval=0
ReturnToService=2
MinJobAge=600
KillWait=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
"""


def find_missing() -> str | None:
    """Why no cluster can be started here, None if one can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "Slurm's node needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return (
        f"{', '.join(missing)} is not installed (Debian: slurmctld slurmd slurm-client munge)" if missing else None
    )


class SlurmCluster:
    """The processes of a cluster; `environment` is what its commands need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        folder.chmod(0o711)
        ports = [_free_port() for _ in range(2)]
        facts = {"controller_port": ports[0], "node_port": ports[1], "folder": folder}
        conf = _CONF.format(host=socket.gethostname().split(".")[0], **facts)
        (folder / "slurm.conf").write_text(conf)

    def start(self) -> None:
        """Start everything, and wait for the node."""
        files = {name: f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "pid", "log", "seed")}
        self._spawn("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files.values())
        _wait_until(lambda: (self.folder / "munge.socket").exists(), "munged")
        self.start_controller()
        self._spawn("slurmd", "-D")
        _wait_until(lambda: self.ask("sinfo", "-h", "-o", "%T", "-p", "cpu").strip() == "idle", "the node")

    def start_controller(self) -> None:
        """Start the controller, which goes on where it was stopped."""
        self._spawn("slurmctld", "-D")
        _wait_until(lambda: "UP" in self.ask("scontrol", "ping"), "the controller")

    def stop(self, *names: str) -> None:
        """Stop some of the processes, or all: the node first, whose last job waits for ever for a controller."""
        for name in names or ("slurmd", "slurmctld", "munged"):
            if process := self.processes.pop(name, None):
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def ask(self, *command: str) -> str:
        """The output of one of Slurm's commands."""
        done = subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, text=True)
        return done.stdout

    def count_submitted(self) -> int:
        """How many arrays of jobs were ever submitted."""
        lines = self.ask("scontrol", "-o", "show", "jobs").splitlines()
        fields = [dict(part.partition("=")[::2] for part in line.split()) for line in lines]
        return len({one.get("ArrayJobId", one["JobId"]) for one in fields if "JobId" in one})

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            command = [shutil.which(name) or name, *arguments]
            environment = {**os.environ, **self.environment}
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=out, stderr=out)


@contextmanager
def running_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster, and its end."""
    cluster = SlurmCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.ask("scancel", "--user=root")
        cluster.stop()


def _wait_until(is_so: object, what: str) -> None:
    """Wait for something to start."""
    ends = time.monotonic() + _START_SECONDS
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > ends:
            raise TimeoutError(f"{what} did not start")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
