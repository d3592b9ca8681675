"""Runs inside an allocation: as the tasks of an srun step, and as one step started from salloc or a batch script."""

from __future__ import annotations

import re
import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, WORKS, find_processes, wait_until

if TYPE_CHECKING:
    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

STEP = ("srun", "-N2", "--ntasks-per-node=1")
GPU_STEP = (*STEP, "--gpus-per-node=2")
_BLIND_ON_NODE_1 = '[ "$SLURM_NODEID" = 1 ] && export CUDA_VISIBLE_DEVICES=0; exec "$@"'


def in_shell(text: str, *before: str) -> list[str]:
    """Return words that run the launcher behind some shell text, which ends with its ``exec``."""
    return [*before, "sh", "-c", text, "sh"]


@pytest.fixture(scope="module")
def step(on_slurm: OnSlurm) -> EndedOnSlurm:
    """Run four workers as the agents of a step of two nodes with two GPUs each."""
    return on_slurm.run(*on_slurm.plain("plain"), before=GPU_STEP)


def test_step_is_the_agents(step: EndedOnSlurm) -> None:
    """``auto`` in an srun step makes its tasks the agents: every rank is told once, and the code is 0."""
    assert step.code == 0, step.err
    told = step.ranks()
    assert sorted(told) == [0, 1, 2, 3]
    assert len(re.findall(r"^\[\d\] \{", step.out, re.MULTILINE)) == 4
    assert [int(told[rank]["NODE_RANK"]) for rank in range(4)] == [0, 0, 1, 1]
    assert told[0]["host"] == told[1]["host"] == told[0]["main_address"] != told[2]["host"]
    assert {place["devices"] for place in told.values()} == {"0,1"}


def test_node_0_alone_prints_header_and_closing_text(step: EndedOnSlurm) -> None:
    """A step shows one header and one closing text, whatever its number of tasks."""
    assert len(re.findall(r"on 2 x 2 = 4 workers, in this job step, 2 GPUs a node$", step.out, re.MULTILINE)) == 1
    assert len(re.findall(r"^run:  ", step.out, re.MULTILINE)) == 1
    assert len(re.findall(r"^COMPLETED  job \d+ after .* 4 workers on 2 nodes", step.out, re.MULTILINE)) == 1


def test_run_folder_of_a_step_is_named_by_job_and_step(step: EndedOnSlurm) -> None:
    """The run folder of a step is ``<name>-<job>-<step>``, with the report in it."""
    assert step.run_dir.name == f"on_nodes-{step.report['job_id']}-0"
    assert step.report["state"] == "COMPLETED"


def test_allocation_by_name(on_slurm: OnSlurm) -> None:
    """``cluster=allocation`` in a step does what ``auto`` does."""
    ended = on_slurm.run(*on_slurm.plain("plain", "cluster=allocation"), before=STEP)
    assert ended.code == 0, ended.err
    assert sorted(ended.ranks()) == [0, 1]


@pytest.mark.parametrize("word", ["cluster=auto", "cluster.mode=auto", "cluster=site"])
def test_auto_by_word_or_by_a_sites_file(on_slurm: OnSlurm, word: str) -> None:
    """``cluster=auto``, or a site's own cluster file that leaves the mode at auto, is the same as no word at all."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "conf/cluster/site.yaml", "mode: auto\n")
    ended = on_slurm.run(*on_slurm.plain("plain", "--config-dir=conf", word), before=STEP, cwd=cwd)
    assert ended.code == 0, ended.out
    assert sorted(ended.ranks()) == [0, 1]


def test_mode_of_the_defaults_file_counts_in_a_step(on_slurm: OnSlurm) -> None:
    """``cluster.mode: local`` in a defaults.yaml is local in a step too, as it is everywhere else."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "conf/defaults.yaml", "cluster:\n  mode: local\n")
    ended = on_slurm.run(*on_slurm.plain("plain", "--config-dir=conf"), before=("srun", "-N1"), cwd=cwd)
    assert ended.code == 0, ended.err
    assert "on this machine" in ended.out


def test_exit_code_of_a_step_is_the_runs(on_slurm: OnSlurm) -> None:
    """The command srun ends with the run's exit code, and the closing text names the node."""
    ended = on_slurm.run(*on_slurm.plain("ends.py:exit_with", "work.kwargs.code=3"), before=STEP)
    assert ended.code == 3
    assert ended.seconds < 20
    host = ended.report["attempts"][0]["nodes"][1]
    assert f"root cause: global_rank 1 (node 1 {host}, local_rank 0," in ended.out


def test_given_main_address_reaches_the_workers(on_slurm: OnSlurm) -> None:
    """``launch.main_address`` goes to the workers with ``{host}`` replaced."""
    name = on_slurm.cluster.node_names[0]
    ip = on_slurm.cluster.settings.addresses[name]
    ended = on_slurm.run(*on_slurm.plain("plain", f"launch.main_address={ip}"), before=(*STEP, "-w", name))
    assert {place["main_address"] for place in ended.ranks().values()} == {ip}, ended.err


def test_bad_configuration_is_told_once(on_slurm: OnSlurm) -> None:
    """A wrong word in a step of three nodes is one error text and exit code 2, within seconds."""
    ended = on_slurm.run(*on_slurm.plain("plain", "nodess=3"), before=("srun", "-N3"))
    assert ended.code == 2
    assert ended.err.count("error: unknown key 'nodess'") == 1
    assert ended.err.count("fix:") == 1
    assert ended.seconds < 30
    assert ended.run_dirs == []


@pytest.mark.parametrize("options", [("-N1", "-n2"), ("-N2", "-n4")])
def test_several_tasks_on_a_node_are_refused(on_slurm: OnSlurm, options: tuple[str, ...]) -> None:
    """A step with more than one task on a node ends with an error that shows the list and how to start it."""
    ended = on_slurm.run(*on_slurm.plain("plain"), before=("srun", *options))
    assert ended.code == 2
    assert "error: the step does not have one task on each node" in ended.err
    assert re.search(r"SLURM_STEP_TASKS_PER_NODE=\S+, SLURM_STEP_NUM_TASKS=[24]", ended.err)
    assert "--ntasks-per-node=1" in ended.err
    assert ended.run_dirs == []


@pytest.mark.parametrize(("nodes", "word"), [(3, "fewer"), (1, "more")])
def test_step_of_another_size_is_refused(on_slurm: OnSlurm, nodes: int, word: str) -> None:
    """A step has to have as many nodes as the run asks for; the error tells both numbers."""
    ended = on_slurm.run(*on_slurm.plain("plain", f"nodes={nodes}"), before=STEP)
    assert ended.code == 2
    assert ended.err.count(f"error: the step has {word} nodes than the run asks for") == 1
    assert "SLURM_STEP_NUM_NODES=2" in ended.err
    assert f"nodes={nodes}" in ended.err
    assert ended.seconds < 30


def test_too_few_gpus_are_told(on_slurm: OnSlurm) -> None:
    """A step that sees fewer GPUs than asked for ends with both numbers."""
    words = on_slurm.plain("plain", "resources.gpus_per_node=2")
    ended = on_slurm.run(*words, before=(*STEP, "--gpus-per-node=1"))
    assert ended.code == 2
    assert "asked 2 (resources.gpus_per_node), visible 1: CUDA_VISIBLE_DEVICES=0" in ended.err
    assert ended.seconds < 30


def test_too_few_gpus_on_another_node_are_the_root_cause(on_slurm: OnSlurm) -> None:
    """Where node 1 alone has too few GPUs the report names it as usage, not as a lost node."""
    ended = on_slurm.run(*on_slurm.plain("plain"), before=in_shell(_BLIND_ON_NODE_1, *GPU_STEP))
    assert ended.code == 2
    assert "asked 2" in ended.err
    assert (ended.report["state"], ended.report["failure_class"]) == ("FAILED", "usage")


def test_run_folder_that_is_not_shared_is_told(on_slurm: OnSlurm) -> None:
    """A run folder that node 1 cannot see is an error that says so, with no traceback."""
    words = on_slurm.plain("ranks.py:Static", "launch.join_timeout_s=1")
    ended = on_slurm.run(*words, before=in_shell('mkdir -p /tmp/own; cd /tmp/own; exec "$@"', *STEP))
    for name in on_slurm.cluster.node_names:
        on_slurm.cluster.run(["rm", "-rf", "/tmp/own"], host=name)  # noqa: S108
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert "run_root" in ended.out + ended.err


def test_node_0_that_breaks_leaves_nobody_waiting(on_slurm: OnSlurm) -> None:
    """When node 0 fails of something unforeseen before there is a plan, the others end too."""
    cwd = on_slurm.make_folder()
    # A function of Python's that fails on node 0 alone stands for whatever goes wrong there.
    on_slurm.write(cwd, "bad/sitecustomize.py", "import os\nos.sched_getaffinity = None\n")
    broken = '[ "$SLURM_NODEID" = 0 ] && export PYTHONPATH="$PWD/bad"; exec timeout --kill-after=1 8 "$@"'
    ended = on_slurm.run(*on_slurm.plain("plain"), before=in_shell(broken, *STEP), cwd=cwd)
    assert "TypeError" in ended.err
    assert ended.code not in {0, 124, 137}


def test_step_on_part_of_the_allocation(on_slurm: OnSlurm) -> None:
    """A step on the last two nodes of three has a main host of its own."""
    last = on_slurm.cluster.node_names[1:]
    before = ("salloc", "-N3", "srun", "-N2", "-n2", "-w", ",".join(last))
    ended = on_slurm.run(*on_slurm.plain("plain"), before=before)
    assert ended.code == 0, ended.err
    assert [place["host"] for _, place in sorted(ended.ranks().items())] == list(last)
    assert {place["main_address"] for place in ended.ranks().values()} == {last[0]}


def test_two_steps_of_a_job_side_by_side(on_slurm: OnSlurm) -> None:
    """Two steps at once on the same nodes have ports and folders of their own, and both end well."""
    cwd = on_slurm.make_folder()
    words = shlex.join([*on_slurm.launcher, *on_slurm.plain("plain")])
    text = f'for i in 1 2; do srun --overlap -N2 -n2 {words} > out$i 2>&1 & pids="$pids $!"; done\n'
    text += "for pid in $pids; do wait $pid || exit 1; done"
    ended = on_slurm.run_batch(text, "-N2", "--ntasks-per-node=1", cwd=cwd)
    assert ended.code == 0, [(cwd / f"out{i}").read_text() for i in (1, 2)]
    assert sorted(path.name[-2:] for path in ended.run_dirs) == ["-0", "-1"]
    assert all((path / "report.json").exists() for path in ended.run_dirs)
    ports = re.findall(r'"main_port": (\d+)', (cwd / "out1").read_text() + (cwd / "out2").read_text())
    assert len(ports) == 4
    assert len(set(ports)) == 2


def test_main_address_where_slurm_numbers_nodes_otherwise(on_slurm: OnSlurm) -> None:
    """With a host file that names the nodes backwards, rank 0 is on the main host, or node 0 says what to do."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "hostfile", "".join(f"{name}\n" for name in reversed(on_slurm.cluster.node_names)))
    before = ("env", f"SLURM_HOSTFILE={cwd}/hostfile", "srun", "-n3", "--distribution=arbitrary")
    ended = on_slurm.run(*on_slurm.plain("plain"), before=before, cwd=cwd)
    if ended.code == 0:
        told = ended.ranks()
        assert {place["main_address"] for place in told.values()} == {told[0]["host"]}
    else:
        assert ended.code == 2
        assert "launch.main_address" in ended.err


def test_component_of_a_heterogeneous_job(on_slurm: OnSlurm) -> None:
    """A step in the second component of a heterogeneous job has that component's nodes alone."""
    ended = on_slurm.run(*on_slurm.plain("plain"), before=("salloc", "-N1", ":", "-N2", "srun", "--het-group=1"))
    assert ended.code == 0, ended.err
    assert sorted(ended.ranks()) == [0, 1]
    assert ended.run_dir.name.endswith("-0-het1")
    assert len({place["host"] for place in ended.ranks().values()}) == 2


def test_task_of_an_array(on_slurm: OnSlurm) -> None:
    """A step of an array's task names its run folder and its report by array and task."""
    words = shlex.join([*on_slurm.launcher, *on_slurm.plain("plain")])
    ended = on_slurm.run_batch(f"srun {words}", "-N2", "--ntasks-per-node=1", "--array=3")
    assert ended.code == 0, ended.err
    assert re.fullmatch(r"on_nodes-\d+_3-0", ended.run_dir.name)
    assert re.fullmatch(r"\d+_3", ended.report["job_id"])


def test_cancelled_step_has_a_report(on_slurm: OnSlurm) -> None:
    """To cancel a step lets its workers save, and the report says CANCELLED."""
    started = on_slurm.start(*on_slurm.plain("ends.py:save_on_term"), before=("srun", "-N2", "--job-name=to-cancel"))
    on_slurm.wait_for_text(started, "ready", ranks=2)
    on_slurm.cluster.run(["scancel", "--name=to-cancel"], check=True)
    ended = on_slurm.finish(started)
    assert ended.code != 0
    assert started.count_logs_with("saved") == 2
    wait_until((ended.run_dir / "report.json").exists, what="the report", timeout_s=15)
    assert ended.report["state"] == "CANCELLED"


@pytest.fixture(scope="module")
def foreground(on_slurm: OnSlurm) -> EndedOnSlurm:
    """Run in the foreground from the shell of salloc."""
    return on_slurm.run(*on_slurm.plain("plain"), before=("salloc", "-N2", "--gpus-per-node=2"))


def test_salloc_shell_starts_one_step(foreground: EndedOnSlurm) -> None:
    """``auto`` in the shell of salloc runs one step on its nodes in the foreground, and shows all ranks' lines."""
    assert foreground.code == 0, foreground.err
    told = foreground.ranks()
    assert [int(told[rank]["NODE_RANK"]) for rank in sorted(told)] == [0, 0, 1, 1]
    assert told[0]["host"] != told[2]["host"]
    assert {place["devices"] for place in told.values()} == {"0,1"}
    assert "in this allocation" in foreground.out
    assert re.search(r"^COMPLETED  job \d+ after", foreground.out, re.MULTILINE)


def test_part_of_the_allocation_from_its_shell(on_slurm: OnSlurm) -> None:
    """``nodes=2`` in an allocation of three is a step on two of them."""
    ended = on_slurm.run(*on_slurm.plain("plain", "nodes=2"), before=("salloc", "-N3"))
    assert ended.code == 0, ended.err
    assert sorted(ended.ranks()) == [0, 1]


def test_more_nodes_than_the_allocation_has(on_slurm: OnSlurm) -> None:
    """``nodes=3`` in an allocation of two is exit code 2, and the fix is ``cluster=slurm``."""
    ended = on_slurm.run(*on_slurm.plain("plain", "nodes=3"), before=("salloc", "-N2"))
    assert ended.code == 2
    assert "error: the allocation has fewer nodes than the run asks for" in ended.err
    assert "cluster=slurm" in ended.err
    assert ended.run_dirs == []


def test_exit_code_in_the_shell_of_salloc(on_slurm: OnSlurm) -> None:
    """The foreground run ends with the run's code, and tells the failing rank's traceback."""
    ended = on_slurm.run(*on_slurm.plain("ends.py:raise_on_1"), before=("salloc", "-N2"))
    assert ended.code == 1
    assert "raised ValueError: no such luck" in ended.out
    assert ended.seconds < 20


def test_interactive_step_of_salloc(on_slurm: OnSlurm) -> None:
    """With ``use_interactive_step``, where the shell is itself a special step, ``auto`` runs one step on all nodes."""
    cwd = on_slurm.make_folder()
    text = shlex.join([*on_slurm.launcher, *on_slurm.plain("plain")]) + " > out 2>&1; exit $?\n"
    with on_slurm.cluster.configured("LaunchParameters=use_interactive_step"):
        # A pseudo-terminal is wanted by the interactive step, and script(1) makes one.
        done = on_slurm.cluster.run(["script", "-qec", "salloc -N2", "/dev/null"], cwd=cwd, text_in=text, timeout_s=60)
    said = (cwd / "out").read_text()
    assert done.returncode == 0, said
    assert len(re.findall(r"^\[[01]\] \{", said, re.MULTILINE)) == 2
    assert "in this allocation" in said


def test_batch_script_starts_one_step(on_slurm: OnSlurm) -> None:
    """``auto`` in a batch script runs one step on the job's nodes, and its exit code is the script's."""
    words = shlex.join(on_slurm.plain("ends.py:exit_with", "work.kwargs.code=3"))
    ended = on_slurm.run_batch(f"launch {words}", "-N2", "--ntasks-per-node=1")
    assert ended.code == 3, ended.err
    assert "in this allocation" in ended.out
    assert "ended with exit code 3" in ended.out
    assert ended.report["world_size"] == 2


def test_allocation_by_name_outside_srun_is_refused(on_slurm: OnSlurm) -> None:
    """``cluster=allocation`` in a batch script on two nodes is an error at once, not a wait for the other node."""
    words = shlex.join(on_slurm.plain("plain", "cluster=allocation"))
    ended = on_slurm.run_batch(f"time -p launch {words}", "-N2")
    assert ended.code == 2
    assert "error: this process runs outside srun" in ended.err
    assert "srun --ntasks-per-node=1" in ended.err
    took = re.search(r"^real (\S+)$", ended.err, re.MULTILINE)
    assert took is not None
    assert float(took[1]) < 30


def test_allocation_by_name_in_a_batch_script_of_one_node(on_slurm: OnSlurm) -> None:
    """``cluster=allocation`` in a batch script on one node runs there."""
    ended = on_slurm.run_batch(f"launch {shlex.join(on_slurm.plain('plain', 'cluster=allocation'))}", "-N1")
    assert ended.code == 0, ended.err
    assert sorted(ended.ranks()) == [0]


def test_step_in_a_step_does_not_wait(on_slurm: OnSlurm) -> None:
    """``cluster=step`` in a plain step is the agent of that step, for a step in it would wait for ever."""
    before = in_shell('exec timeout --kill-after=1 4 "$@"', "srun", "-N1")
    ended = on_slurm.run(*on_slurm.plain("plain", "cluster=step"), before=before)
    assert ended.code == 0, ended.out + ended.err
    assert "in this job step" in ended.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_shell_of_salloc(on_slurm: OnSlurm, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends a foreground run: the workers save, the code is 143, and nothing stays on the nodes."""
    text = 'trap : INT TERM; "$@" & echo $! > pid; while kill -0 $!; do wait $!; code=$?; done; exit $code'
    words = on_slurm.plain("ends.py:save_on_term", "resources.workers_per_node=2")
    started = on_slurm.start(*words, before=["salloc", "-N2", "bash", "-c", f"set -m; {text}", "bash"])
    on_slurm.wait_for_text(started, "ready", ranks=4)
    pid = (started.cwd / "pid").read_text().strip()
    on_slurm.cluster.run(["kill", f"-{number.name[3:]}", pid], check=True)
    ended = on_slurm.finish(started, timeout_s=30)
    assert ended.code == 143, ended.out + ended.err
    assert re.search(r"^CANCELLED  job \d+", ended.out, re.MULTILINE)
    assert started.count_logs_with("saved") == 4
    assert ended.report["state"] == "CANCELLED"
    wait_until(lambda: not find_processes(str(ended.run_dir)), what="nothing left on the nodes", timeout_s=5)


def test_second_ctrl_c_kills(on_slurm: OnSlurm) -> None:
    """A second Ctrl-C ends works that no SIGTERM ends, long before the grace is over."""
    words = on_slurm.plain("stubborn.py:run")
    text = 'trap "" INT; set -m; "$@" & echo $! > pid; wait'
    started = on_slurm.start(*words, before=["salloc", "-N2", "bash", "-c", text, "bash"])
    on_slurm.wait_for_text(started, "stubborn", ranks=2)
    pid = (started.cwd / "pid").read_text().strip()
    for _ in range(2):
        on_slurm.cluster.run(["kill", "-INT", pid], check=True)
        wait_until(lambda: "got SIGTERM" in read_node_log(on_slurm, started.cwd), what="the first one has arrived")
    ended = on_slurm.finish(started, timeout_s=30)
    assert re.search(r"^CANCELLED  ", ended.out, re.MULTILINE), ended.out + ended.err
    wait_until(lambda: not find_processes(str(ended.run_dir)), what="nothing left on the nodes", timeout_s=10)


def read_node_log(on_slurm: OnSlurm, cwd: object) -> str:
    """Return what the agents of the run in a folder have written."""
    logs = on_slurm.cluster.shared.glob("*/runs/*/attempt-0/node*.log")
    return "".join(log.read_text() for log in logs if log.is_relative_to(str(cwd)))


def test_training_as_a_step(on_slurm: OnSlurm) -> None:
    """A process group over two nodes works in a step as it does in a submitted job."""
    words = ["strategy=pytorch_spawn", f"work.target={WORKS}/training.py:group"]
    ended = on_slurm.run(*words, before=GPU_STEP)
    assert ended.code == 0, ended.err
    assert ended.ranks() == {rank: {"rank": rank, "size": 4, "backend": "gloo"} for rank in range(4)}


def test_config_dir_is_read_by_node_0_alone(on_slurm: OnSlurm) -> None:
    """A configuration folder that only node 0 can see is enough for a step: it sends the plan to the others."""
    text = (
        'if [ "$SLURM_NODEID" = 0 ]; then rm -rf /tmp/conf; cp -r "$1" /tmp/conf; fi; shift; '
        '"$@" --config-dir=/tmp/conf; code=$?; rm -rf /tmp/conf; exit $code'
    )
    before = [*STEP, "sh", "-c", text, "sh", str(PLAIN_CONFIG)]
    ended = on_slurm.run("strategy=plain", "work.target=on_nodes.py:plain", before=before)
    assert ended.code == 0, ended.err
    assert sorted(ended.ranks()) == [0, 1]
