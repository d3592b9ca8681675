"""The test cluster is a real Slurm, can be broken on purpose, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slurm_cluster import ClusterError, SlurmCluster, Tracker
from tests.slurm_cluster.cgroups import find_cgroups
from tests.slurm_cluster.hosts import find_hosts
from tests.slurm_cluster.settings import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]


@pytest.fixture
def intact(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """Give the suite's cluster to a test that breaks it, and mend it afterwards: no job, all nodes idle."""
    yield cluster
    cluster.run(["scancel", "-u", "hpcuser"])
    for index in range(len(cluster.node_names)):
        cluster.wait_for_node(index, "idle")


def test_tasks_run_on_every_node_as_ordinary_user(cluster: SlurmCluster) -> None:
    """A step has one task on each host, and none of them is root."""
    done = cluster.run(["srun", "-N3", "sh", "-c", "echo $(hostname) $(id -un)"], check=True)
    assert sorted(done.stdout.splitlines()) == [f"{name} hpcuser" for name in cluster.node_names]


def test_tasks_run_this_interpreter_and_project(cluster: SlurmCluster) -> None:
    """The interpreter of the tests runs on the nodes, with its packages, whatever the machine's folders allow."""
    code = "import sys, torch; print(sys.prefix, torch.__name__)"
    done = cluster.run(["srun", "-N2", "python", "-c", code], check=True)
    assert done.stdout.splitlines() == [f"{sys.prefix} torch"] * 2


def test_nodes_resolve_each_other(cluster: SlurmCluster) -> None:
    """Every node finds the others by name, at addresses that only the cluster has."""
    name = cluster.node_names[1]
    code = f"import socket; print(socket.gethostbyname('{name}'))"
    done = cluster.run(["srun", "-w", cluster.node_names[0], "python", "-c", code], check=True)
    assert done.stdout.strip() == cluster.settings.addresses[name]


def test_gpus_are_numbered_by_slurm(cluster: SlurmCluster) -> None:
    """A step that asks for two GPUs a node sees their numbers."""
    done = cluster.run(["srun", "-N2", "--gpus-per-node=2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], check=True)
    assert done.stdout.split() == ["0,1", "0,1"]


def test_tmp_is_each_hosts_own(cluster: SlurmCluster) -> None:
    """A file in /tmp of one node is not there on another, and a file in the shared folder is."""
    first, second = cluster.node_names[:2]
    cluster.run(["srun", "-w", first, "sh", "-c", "touch /tmp/mark shared-mark"], check=True)
    done = cluster.run(["srun", "-w", second, "sh", "-c", "ls /tmp shared-mark"], check=True)
    cluster.run(["srun", "-w", first, "sh", "-c", "rm /tmp/mark shared-mark"], check=True)
    assert "shared-mark" in done.stdout
    assert "mark" not in done.stdout.split()


def test_short_partition_limits_time(cluster: SlurmCluster) -> None:
    """A job of the short partition that names no time has one minute."""
    job = cluster.submit_short("true")
    assert cluster.job(job)["TimeLimit"] == "00:01:00"


def test_out_of_memory_is_seen_by_slurm(cluster: SlurmCluster) -> None:
    """A job that takes more memory than it has asked for is killed, where cgroups limit it."""
    job = cluster.submit("python -c 'x = bytearray(600_000_000)'", "--mem=100")
    ended = cluster.wait_for_job(job, "OUT_OF_MEMORY", "COMPLETED", "FAILED")
    assert ended["JobState"] == ("OUT_OF_MEMORY" if cluster.tracker is Tracker.CGROUP else "COMPLETED")


def test_full_queue_lets_jobs_wait(intact: SlurmCluster) -> None:
    """While the queue is filled, a job stays pending for want of resources."""
    intact.fill_queue()
    waiting = intact.submit("true")
    time.sleep(1.5)
    assert intact.job(waiting)["JobState"] == "PENDING"


def test_drained_node_gets_no_job(intact: SlurmCluster) -> None:
    """A job for a drained node waits until the node is resumed."""
    intact.drain(0)
    job = intact.submit("true", "-w", intact.node_names[0])
    assert "drain" in intact.node_state(0)
    time.sleep(1)
    assert intact.job(job)["JobState"] == "PENDING"
    intact.resume(0)
    intact.wait_for_job(job, "COMPLETED")


def test_urgent_job_preempts_and_requeues(intact: SlurmCluster) -> None:
    """An urgent job takes the node of an ordinary one, which runs again afterwards."""
    node = intact.node_names[0]
    grace = "PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=10 PreemptMode=REQUEUE GraceTime=1"
    with intact.configured(grace):
        ordinary = intact.submit("sleep 600", "-w", node)
        intact.wait_for_job(ordinary, "RUNNING")
        urgent = intact.submit_urgent("true", "-w", node)
        intact.wait_for_job(urgent, "COMPLETED")
        again = intact.wait_for_job(ordinary, "RUNNING")
    assert again["Restarts"] == "1"


def test_lost_node_requeues_its_job(intact: SlurmCluster) -> None:
    """A job whose node dies is requeued, and the node works again after its revival."""
    job = intact.submit("sleep 600", "-N2", "-w", ",".join(intact.node_names[1:]))
    intact.wait_for_job(job, "RUNNING")
    intact.kill_node(2)
    intact.wait_for_node(2, "down")
    assert intact.job(job)["Restarts"] == "1"
    intact.revive_node(2)
    done = intact.run(["srun", "-w", intact.node_names[2], "hostname"], check=True)
    assert done.stdout.split() == [intact.node_names[2]]


def test_cut_network_is_silent_and_can_be_restored(intact: SlurmCluster) -> None:
    """A node without network runs on, is set down by Slurm, and is idle again when the network is back."""
    intact.cut_network(1)
    assert intact.run(["hostname"], host=intact.node_names[1]).stdout.split() == [intact.node_names[1]]
    intact.wait_for_node(1, "down")
    intact.restore_network(1)
    intact.wait_for_node(1, "idle", timeout_s=10)


def test_slurmctld_can_go_away(intact: SlurmCluster) -> None:
    """A running job survives that slurmctld is away."""
    job = intact.submit("sleep 3")
    intact.wait_for_job(job, "RUNNING")
    intact.stop_slurmctld()
    assert "DOWN" in intact.run(["scontrol", "ping"]).stdout
    intact.start_slurmctld()
    intact.wait_for_job(job, "COMPLETED")


def test_slurmdbd_can_go_away(intact: SlurmCluster) -> None:
    """While slurmdbd is away sacct fails, and afterwards it answers again."""
    intact.stop_slurmdbd()
    assert intact.run(["sacct"]).returncode != 0
    intact.start_slurmdbd()
    assert intact.run(["sacct"]).returncode == 0


def test_configuration_can_change_for_a_while(intact: SlurmCluster) -> None:
    """A line of slurm.conf is in force inside the block and no longer after it."""
    with intact.configured("JobRequeue=0"):
        assert "JobRequeue              = 0" in intact.scontrol("show", "config")
    assert "JobRequeue              = 1" in intact.scontrol("show", "config")


def test_command_that_hangs_is_killed_with_its_children(cluster: SlurmCluster) -> None:
    """A command that takes too long is an error at once, even if a child of it keeps its output open."""
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sh", "-c", "sleep 77 & wait"], timeout_s=0.5)
    assert time.monotonic() - started < 30


def test_interrupt_reaches_the_command(cluster: SlurmCluster) -> None:
    """Ctrl-C for a command on the login side arrives there."""
    process = cluster.popen(
        ["sh", "-c", "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.1; done"]
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    cluster.signal_command(process, signal.SIGINT)
    assert process.communicate(timeout=10)[0] == "interrupted\n"
    assert process.returncode == 3


def test_without_slurmdbd_sacct_is_disabled(make_cluster: Callable[..., SlurmCluster]) -> None:
    """In the flavour without slurmdbd sacct says that accounting is disabled."""
    own = make_cluster()
    own.up()
    done = own.run(["sacct"])
    assert "accounting storage is disabled" in done.stdout + done.stderr


def test_linuxproc_cluster_runs_steps(make_cluster: Callable[..., SlurmCluster]) -> None:
    """The other process tracker works too."""
    own = make_cluster(tracker=Tracker.LINUXPROC)
    own.up()
    assert own.run(["srun", "hostname"]).stdout.split() == list(own.node_names)
    assert "proctrack/linuxproc" in own.scontrol("show", "config")


def test_two_clusters_do_not_meet(cluster: SlurmCluster, make_cluster: Callable[..., SlurmCluster]) -> None:
    """Two clusters with different roots run at the same time, and to take one down leaves the other alone."""
    own = make_cluster()
    own.up()
    for running in (own, cluster):
        assert running.run(["srun", "-N1", "hostname"]).stdout.strip() in running.node_names
    own.down()
    assert cluster.run(["srun", "-N1", "hostname"]).stdout.strip() in cluster.node_names


def test_second_up_changes_nothing(make_cluster: Callable[..., SlurmCluster]) -> None:
    """To start a cluster that runs already keeps its hosts."""
    own = make_cluster()
    own.up()
    before = find_hosts(own.settings.root)
    own.up()
    assert find_hosts(own.settings.root) == before


@pytest.mark.parametrize("delay_s", [0.15, 0.4, 0.8])
def test_killed_up_can_be_repeated(make_cluster: Callable[..., SlurmCluster], delay_s: float) -> None:
    """After an ``up`` that was killed half-way, the next one starts a whole cluster."""
    own = make_cluster()
    command = [sys.executable, "-m", "tests.slurm_cluster", "up", "--nodes=1", "--without-dbd"]
    command += [f"--slurm={own.settings.version.value}", f"--root={own.settings.root}"]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL) as process:
        time.sleep(delay_s)
        process.kill()
    own.up()
    assert own.run(["srun", "hostname"]).stdout.split() == list(own.node_names)


def test_down_leaves_nothing(make_cluster: Callable[..., SlurmCluster]) -> None:
    """After ``down`` the machine is as it was before: processes, links, namespaces, mounts, control groups, files."""
    own = make_cluster(with_dbd=True)
    before = _look_at_machine(own)
    own.up()
    own.submit("sleep 600")
    assert _look_at_machine(own) != before
    own.down()
    assert _look_at_machine(own) == before


def test_running_cluster_shows_nothing_on_the_machine(cluster: SlurmCluster) -> None:
    """A running cluster has no link, no mount and no file in the machine's own folders."""
    assert str(cluster.settings.root) not in Path("/proc/self/mounts").read_text()
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    assert "port11" not in links
    assert cluster.node_names[0] not in Path("/etc/hosts").read_text()
    assert "hpcuser" not in Path("/etc/passwd").read_text()


def test_folder_of_somebody_else_is_refused(make_cluster: Callable[..., SlurmCluster]) -> None:
    """A root folder with other things in it is neither used nor removed, and the error says so."""
    own = make_cluster()
    precious = own.settings.root / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    for verb in (own.up, own.down):
        with pytest.raises(ClusterError, match="belongs to something else") as caught:
            verb()
        assert "thesis.tex" in str(caught.value)
        assert "--root" in str(caught.value)
    precious.unlink()


def _look_at_machine(own: SlurmCluster) -> dict[str, object]:
    """Return what a cluster could leave behind."""
    commands = [entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    root = own.settings.root
    return {
        "processes": sum(str(root).encode() in _read(path) for path in commands),
        "links": subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout,
        "mounts": Path("/proc/self/mounts").read_text(),
        "namespaces": sorted(Path("/run/netns").glob("*")),
        "cgroups": find_cgroups(own.node_names),
        "files": sorted(str(path) for path in root.parent.glob(f"*{root.name}*")),
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
