"""What a person waits for at the prompt: help, a look at the script, a submission."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bench.contestants import PEERS, make_ours
from bench.figures import Figure, make_ratio
from bench.lab import PROJECT, WORKS, BenchError, Values, pick, pick_both

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.lab import Lab

_HYDRA = "hydra-submitit-launcher, until sbatch has it"
_FABRIC = "fabric run --help"
_RIVALS = {
    "torchrun --help": "--help",
    _FABRIC: "--help",
    _HYDRA: "submit",
}


def measure(lab: Lab) -> None:
    """Measure ours and theirs in turn."""
    ours = ("python", "-m", "hpc_multinode")
    words = make_ours("pytorch_spawn", "reduce.py:reduce_once", 4, lab.cluster.shared).argv[3:]
    commands: dict[str, Sequence[str]] = {
        "python -c pass": ("python", "-c", "pass"),
        "--help": (*ours, "--help"),
        "render": (*ours, "render", *words),
        "render --check": (*ours, "render", "--check", *words),
        "list": (*ours, "list"),
        "torchrun --help": ("torchrun", "--help"),
    }
    contestants: dict[str, Callable[[], Values]] = {
        who: partial(_time_command, lab, who, argv) for who, argv in commands.items()
    }
    contestants["submit"] = partial(_time_submit, lab)
    python = PEERS / "bin" / "python"
    if python.exists():
        fabric = (str(python), "-m", "lightning.fabric.cli", "run", "--help")
        contestants[_FABRIC] = partial(_time_command, lab, _FABRIC, fabric)
        contestants[_HYDRA] = partial(_time_hydra, lab)
    else:
        for who in (_FABRIC, _HYDRA):
            lab.fail(who, BenchError(f"not installed; python -m bench.peers makes {PEERS.name}"))
    rounds = lab.run_rounds(contestants)
    for who in contestants:
        if values := pick(rounds, who, "seconds"):
            lab.add(Figure(what=who, unit="s", values=values, in_table=who in ("--help", "render", "submit")))
    for rival, own in _RIVALS.items():
        theirs, values = pick_both(rounds, rival, own, "seconds")
        if values:
            lab.add(make_ratio(f"{rival}, to our {own}", theirs, values, least=1.0, in_table=True))


def _time_command(lab: Lab, who: str, argv: Sequence[str]) -> Values:
    lab.show_command(who, " ".join(argv))
    began = time.monotonic()
    lab.run(argv, lab.cluster.shared)
    return {"seconds": time.monotonic() - began}


def _time_submit(lab: Lab) -> Values:
    out = lab.make_folder("login")
    job = make_ours("pytorch_spawn", "reduce.py:reduce_once", 4, out, "resources.sbatch.hold=true")
    lab.show_command("submit", job.render())
    began = time.monotonic()
    lab.run(job.argv, out)
    seconds = time.monotonic() - began
    _cancel_all(lab)
    return {"seconds": seconds}


def _time_hydra(lab: Lab) -> Values:
    """Time it until sbatch has answered, when submitit renames the script: the launcher itself waits for the job."""
    out = lab.make_folder("login")
    argv = (
        *(str(PEERS / "bin" / "python"), str(WORKS / "by_hydra.py"), "-m", "hydra/launcher=submitit_slurm"),
        *("hydra.launcher.nodes=2", "hydra.launcher.tasks_per_node=4", "hydra.launcher.cpus_per_task=1"),
        *("+hydra.launcher.additional_parameters.hold=true", f"hydra.sweep.dir={out}/sweep"),
    )
    lab.show_command(_HYDRA, " ".join(argv))
    began = time.time()
    process = lab.cluster.popen(argv, cwd=out, env=lab.env(out))
    try:
        lab.wait_for("submission", lambda: any(out.glob("sweep/.submitit/**/*_submission.sh")), timeout_s=30.0, out=out)
        script = next(out.glob("sweep/.submitit/**/*_submission.sh"))
        return {"seconds": script.stat().st_ctime - began}
    finally:
        process.kill()
        out_text, err_text = process.communicate()
        if not any(out.glob("sweep/.submitit/**/*_submission.sh")):
            lab.note(f"{_HYDRA} said: {(out_text + err_text)[-600:]}")
        _cancel_all(lab)


def _cancel_all(lab: Lab) -> None:
    lab.cluster.run(["scancel", "--user=hpcuser"], cwd=PROJECT)
    lab.wait_until_idle()
