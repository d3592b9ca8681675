"""``SlurmCluster``: a real Slurm on this machine, for tests and for people, with handles to break it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster import lifecycle, network, services
from tests.slurm_cluster.cgroups import choose_tracker
from tests.slurm_cluster.configuration import SHORT_PARTITION, URGENT_PARTITION, write_configuration
from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.hosts import Host, find_hosts, kill_hosts, start_hosts
from tests.slurm_cluster.packages import find_debian_13
from tests.slurm_cluster.settings import USER_NAME, ClusterSettings, SlurmVersion, Tracker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_RUN_TIMEOUT_S = 120.0


class SlurmCluster:
    """A cluster of Slurm nodes, each a set of namespaces on this machine.

    Nodes are numbered from 0 in the order of ``node_names``.

    Args:
        settings: What it is made of.
    """

    def __init__(self, settings: ClusterSettings | None = None) -> None:
        self.settings = settings or ClusterSettings()

    @classmethod
    def find(cls, root: Path) -> SlurmCluster | None:
        """Return the cluster that runs below a root, None if there is none."""
        settings = lifecycle.find_settings(root)
        return cls(settings) if settings else None

    @property
    def node_names(self) -> tuple[str, ...]:
        """Host names of the nodes."""
        return self.settings.node_names

    @property
    def shared(self) -> Path:
        """Folder that all hosts share, owned by the cluster's user."""
        return self.settings.shared

    @property
    def logs(self) -> Path:
        """Folder of the daemons' logs."""
        return self.settings.logs

    @property
    def tracker(self) -> Tracker:
        """The process tracker that is in use."""
        return choose_tracker(self.settings.tracker)

    def up(self) -> None:
        """Start the cluster, unless one with these settings runs already. Another one below this root goes first."""
        if lifecycle.find_settings(self.settings.root) != self.settings:
            lifecycle.start_cluster(self.settings)

    def down(self) -> None:
        """Take the cluster down, in whatever state it is, and remove its root folder."""
        lifecycle.stop_cluster(self.settings.root)

    def status(self) -> str:
        """Return what sinfo and squeue say."""
        state = self.run(["sinfo", "-N", "-o", "%N %P %T %C %G"]).stdout
        return state + self.run(["squeue"]).stdout

    def host(self, name: str) -> Host:
        """Return a running host by its name: ``hpcctl``, ``hpclogin`` or a node."""
        for host in find_hosts(self.settings.root):
            if host.name == name:
                return host
        raise ClusterError(
            what=f"the host {name} is not running",
            found=f"root = {self.settings.root}",
            fix="start it: up, revive_node",
        )

    # Commands

    def user_command(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        host: str = "hpclogin",
        user: str = USER_NAME,
    ) -> list[str]:
        """Return the command line, for this machine, that runs ``argv`` on a host with a user's clean environment."""
        variables = [f"{key}={value}" for key, value in (self.user_env(user) | dict(env or {})).items()]
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--pdeathsig=KILL"]
        start = ["env", "-i", "--default-signal", "-C", str(cwd or self.shared), *variables]
        return self.host(host).command([*(become if user != "root" else []), *start, *argv])

    def user_env(self, user: str = USER_NAME) -> dict[str, str]:
        """Return the environment of a fresh login."""
        home = self.settings.home if user == USER_NAME else Path("/root")
        path = f"{self.settings.python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {
            "HOME": str(home),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "PATH": path,
            "LANG": "C.UTF-8",
            "SLURM_CONF": "/etc/slurm/slurm.conf",
        }

    def popen(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        host: str = "hpclogin",
        user: str = USER_NAME,
    ) -> subprocess.Popen[str]:
        """Start a command and return at once. To press Ctrl-C: ``cluster.signal_command(process, signal.SIGINT)``."""
        return subprocess.Popen(
            self.user_command(argv, cwd=cwd, env=env, host=host, user=user),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = USER_NAME,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        host: str = "hpclogin",
        text_in: str = "",
        timeout_s: float = _RUN_TIMEOUT_S,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login side and wait for it.

        Args:
            argv: The command; ``python`` is the interpreter of the settings.
            user: Who runs it: the cluster's ordinary user, or ``root``.
            cwd: Where; the shared folder if None.
            env: Variables on top of those of a fresh login.
            host: Another host to run it on, such as a node.
            text_in: Its standard input.
            timeout_s: After it, the command is killed with all its children. Seconds.
            check: Whether a non-zero exit code is an error.

        Raises:
            ClusterError: With ``check``, the command failed.
            subprocess.TimeoutExpired: It took too long.
        """
        process = self.popen(argv, user=user, cwd=cwd, env=env, host=host)
        try:
            out, err = process.communicate(text_in, timeout=timeout_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        if check and process.returncode:
            command = " ".join(map(str, argv))
            raise ClusterError(
                what=f"{argv[0]} failed on {host}",
                found=f"exit code {process.returncode} of: {command}\n{out}{err}",
                fix="read the output above and the daemons' logs",
            )
        return subprocess.CompletedProcess(list(map(str, argv)), process.returncode, out, err)

    def signal_command(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        """Send a signal to all processes of a command that ``popen`` has started, as a terminal does for Ctrl-C.

        Not to ``process`` itself: that is nsenter(1), which would die of the signal and take the command with it.
        """
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
            with contextlib.suppress(ProcessLookupError):
                if pid != process.pid and os.getpgid(pid) == process.pid:
                    os.kill(pid, number)

    def scontrol(self, *words: str) -> str:
        """Run scontrol as root on the controller and return what it says."""
        return self.run(["scontrol", *words], user="root", host="hpcctl", cwd=Path("/"), check=True).stdout

    # Jobs

    def submit(self, command: str, *options: str, script: str = "") -> str:
        """Submit a batch job with sbatch and return its id.

        Args:
            command: Shell text that the job runs; its output goes to ``slurm-<id>.out`` in the shared folder.
            options: Options for sbatch.
            script: A whole script instead of ``command``, with its ``#SBATCH`` lines.
        """
        text = script or f"#!/bin/bash\n{command}\n"
        done = self.run(["sbatch", "--parsable", *options], text_in=text, check=True)
        return done.stdout.strip().partition(";")[0]

    def job(self, job_id: str) -> dict[str, str]:
        """Return what ``scontrol show job`` says of a job, key to value."""
        words = self.scontrol("show", "job", "--oneliner", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for_job(self, job_id: str, *states: str, timeout_s: float = 60.0) -> dict[str, str]:
        """Wait until a job is in one of these states and return what Slurm says of it."""
        found: dict[str, str] = {}

        def _is_there() -> bool:
            found.update(self.job(job_id))
            return found["JobState"] in states

        log = self.shared / f"slurm-{job_id}.out"
        services.wait_until(_is_there, f"job {job_id} in state {' or '.join(states)}", log, timeout_s=timeout_s)
        return found

    def submit_urgent(self, command: str, *options: str) -> str:
        """Submit a job that preempts those of the partition ``main``."""
        return self.submit(command, "-p", URGENT_PARTITION, "--exclusive", *options)

    def submit_short(self, command: str, *options: str) -> str:
        """Submit a job into the partition whose limit is 2 minutes, and 1 minute if none is asked for."""
        return self.submit(command, "-p", SHORT_PARTITION, *options)

    def fill_queue(self) -> str:
        """Occupy all nodes, so that other jobs of ``main`` wait. Return the id of the job to cancel."""
        job_id = self.submit("sleep 3600", f"--nodes={self.settings.nodes}", "--exclusive", "--job-name=fill")
        self.wait_for_job(job_id, "RUNNING")
        return job_id

    # Faults

    def kill_node(self, index: int) -> None:
        """Pull a node's plug: its slurmd, its steps and its network are gone without a word."""
        kill_hosts(self.settings.root, [self.node_names[index]])

    def revive_node(self, index: int) -> None:
        """Start a killed node again, as after a reboot, and wait until it is idle."""
        name = self.node_names[index]
        lower = Path("/") if self.settings.version is SlurmVersion.DEBIAN_12 else find_debian_13()
        kill_hosts(self.settings.root, [name])
        hosts = start_hosts([lifecycle.describe_host(self.settings, name, lower)])
        network.connect_host(hosts[network.BRIDGE_HOST], hosts[name], self.settings.addresses[name])
        services.start_munge(self.settings, hosts[name])
        services.start_slurmd(hosts[name])
        self.wait_for_node(index, "idle")

    def cut_network(self, index: int) -> None:
        """Drop silently everything to and from a node, which goes on running."""
        network.cut_cable(self.host(network.BRIDGE_HOST), self.settings.addresses[self.node_names[index]])

    def restore_network(self, index: int) -> None:
        """Undo ``cut_network``. A node that Slurm has set down is called back: by itself it takes most of a minute."""
        network.restore_cable(self.host(network.BRIDGE_HOST), self.settings.addresses[self.node_names[index]])
        if "down" in self.node_state(index):
            self.resume(index)

    def drain(self, index: int) -> None:
        """Let no new job start on a node."""
        self.scontrol("update", f"NodeName={self.node_names[index]}", "State=DRAIN", "Reason=test")

    def resume(self, index: int) -> None:
        """Undo ``drain``, or call a node back that Slurm has set down."""
        self.scontrol("update", f"NodeName={self.node_names[index]}", "State=RESUME")

    def node_state(self, index: int) -> frozenset[str]:
        """Return a node's state and its flags, such as ``down`` and ``not_responding``."""
        words = self.scontrol("show", "node", "--oneliner", self.node_names[index]).split()
        state = next(word.removeprefix("State=") for word in words if word.startswith("State="))
        return frozenset(state.replace("*", "+NOT_RESPONDING").lower().split("+"))

    def wait_for_node(self, index: int, state: str, *, timeout_s: float = 90.0) -> None:
        """Wait until a node is in a state: ``idle`` with no flag, or anything else with any flags."""
        log = self.logs / f"slurmd.{self.node_names[index]}.log"

        def _is_there() -> bool:
            found = self.node_state(index)
            return found == {"idle"} if state == "idle" else state in found

        services.wait_until(_is_there, f"{self.node_names[index]} in state {state}", log, timeout_s=timeout_s)

    def stop_slurmctld(self) -> None:
        """End slurmctld; jobs go on, commands time out."""
        services.stop_daemon(self.host("hpcctl"), "slurmctld")

    def start_slurmctld(self) -> None:
        """Start slurmctld again."""
        services.start_slurmctld(self.settings, self.host("hpcctl"))

    def stop_slurmdbd(self) -> None:
        """End slurmdbd; sacct fails, everything else goes on."""
        services.stop_daemon(self.host("hpcctl"), "slurmdbd")

    def start_slurmdbd(self) -> None:
        """Start slurmdbd again."""
        services.resume_slurmdbd(self.settings, {"hpcctl": self.host("hpcctl")})

    @contextlib.contextmanager
    def configured(self, *lines: str) -> Iterator[None]:
        """Run with other lines in slurm.conf, such as ``JobRequeue=0``, and go back to the old ones afterwards."""
        self._configure(lines)
        try:
            yield
        finally:
            self._configure(())

    def _configure(self, lines: Sequence[str]) -> None:
        write_configuration(self.settings, self.tracker, lines)
        self.scontrol("reconfigure")
