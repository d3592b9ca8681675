"""The text of the configuration files. Pure, but for ``write_configuration``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.slurm_cluster.settings import USER_NAME, ClusterSettings, Tracker

if TYPE_CHECKING:
    from collections.abc import Sequence

CLUSTER_NAME = "hpctest"
DEFAULT_PARTITION = "main"
URGENT_PARTITION = "urgent"
SHORT_PARTITION = "short"
PREEMPTION_GRACE_S = 10

_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost=hpcctl({controller})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
JobAcctGatherFrequency=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1000
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
TCPTimeout=1
SlurmctldTimeout=10
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
KillWait=5
CompleteWait=0
MinJobAge=600
SlurmdParameters=config_overrides
"""


def render_slurm_conf(settings: ClusterSettings, tracker: Tracker, extra: Sequence[str] = ()) -> str:
    """Return the text of slurm.conf.

    Args:
        settings: The cluster.
        tracker: The process tracker, already chosen.
        extra: Lines that replace those of the same key; they come after the settings' own ones.
    """
    lines = _SLURM_CONF.format(
        cluster=CLUSTER_NAME, controller=settings.addresses["hpcctl"], root=settings.root
    ).splitlines()
    lines += _tracker_lines(tracker)
    lines += _accounting_lines(settings)
    lines += _node_lines(settings)
    preempted = f"PreemptMode=REQUEUE GraceTime={PREEMPTION_GRACE_S}"
    lines += [
        f"PartitionName={DEFAULT_PARTITION} Nodes=ALL Default=YES State=UP PriorityTier=10 {preempted}",
        f"PartitionName={URGENT_PARTITION} Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF",
        f"PartitionName={SHORT_PARTITION} Nodes=ALL MaxTime=2 DefaultTime=1 State=UP PriorityTier=10 {preempted}",
    ]
    for line in (*settings.extra_conf, *extra):
        lines = [old for old in lines if not _is_replaced(old, line)]
        lines.append(line)
    return "\n".join(lines) + "\n"


def render_gres_conf(settings: ClusterSettings) -> str:
    """Return the text of gres.conf."""
    if not settings.gpus:
        return ""
    last = f"[0-{settings.gpus - 1}]" if settings.gpus > 1 else "0"
    return "".join(f"NodeName={name} Name=gpu Type=fake File=/run/gpu/nvidia{last}\n" for name in settings.node_names)


def render_cgroup_conf() -> str:
    """Return the text of cgroup.conf: memory is limited, so that a job runs out of it as on a real cluster."""
    return (
        "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nConstrainSwapSpace=no\n"
        "ConstrainDevices=no\nConstrainCores=no\n"
    )


def render_slurmdbd_conf(settings: ClusterSettings) -> str:
    """Return the text of slurmdbd.conf. Slurm insists that ``DbdHost`` is the name of the host it runs on."""
    return (
        f"AuthType=auth/munge\nDbdHost=hpcctl\nSlurmUser=root\nStorageType=accounting_storage/mysql\n"
        f"StorageLoc={CLUSTER_NAME}\nStorageUser=root\nStorageHost=localhost\n"
        f"LogFile={settings.logs}/slurmdbd.log\nPidFile=/run/slurmdbd.pid\n"
    )


def render_host_files(settings: ClusterSettings, hostname: str, passwd: str, group: str) -> dict[str, str]:
    """Return path to text of the files that differ between a host and the machine.

    Args:
        settings: The cluster.
        hostname: The host.
        passwd: Text of the /etc/passwd that the host's would be without the cluster's user.
        group: The same of /etc/group.
    """
    hosts = "".join(f"{address} {name}\n" for name, address in settings.addresses.items())
    uid = settings.uid
    return {
        "/etc/hostname": f"{hostname}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n{hosts}",
        # Without this a look-up of an address asks a name server that does not exist, 10 to 25 s long.
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
        "/etc/passwd": f"{passwd}{USER_NAME}:x:{uid}:{uid}:test cluster user:{settings.home}:/bin/bash\n",
        "/etc/group": f"{group}{USER_NAME}:x:{uid}:\n",
    }


def write_configuration(settings: ClusterSettings, tracker: Tracker, extra: Sequence[str] = ()) -> None:
    """Write all files of /etc/slurm."""
    settings.etc.mkdir(exist_ok=True)
    (settings.etc / "slurm.conf").write_text(render_slurm_conf(settings, tracker, extra))
    (settings.etc / "gres.conf").write_text(render_gres_conf(settings))
    (settings.etc / "cgroup.conf").write_text(render_cgroup_conf())
    secret = settings.etc / "slurmdbd.conf"
    secret.touch(mode=0o600)
    secret.write_text(render_slurmdbd_conf(settings))


def _tracker_lines(tracker: Tracker) -> list[str]:
    if tracker is Tracker.CGROUP:
        return ["ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup", "JobAcctGatherType=jobacct_gather/cgroup"]
    return ["ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/linux"]


def _accounting_lines(settings: ClusterSettings) -> list[str]:
    if not settings.with_dbd:
        return ["AccountingStorageType=accounting_storage/none"]
    lines = ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=hpcctl"]
    return [*lines, "AccountingStorageTRES=gres/gpu"] if settings.gpus else lines


def _node_lines(settings: ClusterSettings) -> list[str]:
    gres = f" Gres=gpu:fake:{settings.gpus}" if settings.gpus else ""
    shape = f"CPUs={settings.cpus} RealMemory={settings.mem_mb}{gres} State=UNKNOWN"
    lines = [f"NodeName={name} NodeAddr={settings.addresses[name]} {shape}" for name in settings.node_names]
    return [*(["GresTypes=gpu"] if settings.gpus else []), *lines]


def _is_replaced(old: str, new: str) -> bool:
    """Whether two lines set the same thing: the same key, and for nodes and partitions the same name too."""
    if new.startswith(("NodeName=", "PartitionName=")):
        return old.split(maxsplit=1)[0] == new.split(maxsplit=1)[0]
    return old.partition("=")[0].lower() == new.partition("=")[0].lower()
