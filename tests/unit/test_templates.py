"""A site's pieces: how they are found, rendered and put around the agents."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.assets import PACKAGE, find_asset
from hpc_multinode.compose import compose_config
from hpc_multinode.config import Config, Mode
from hpc_multinode.errors import ConfigError
from hpc_multinode.planning import make_plan
from hpc_multinode.submission.slurm import render_slurm
from hpc_multinode.submission.standalone import render_standalone
from hpc_multinode.templates import Shell, find_piece, read_pieces, render_piece, split_commands
from hpc_multinode.wrapping import make_agent_command
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

OURS = read_pieces([find_asset("sbatch_templates")])
HOSTILE = ["a b", "it's", "$HOME", "`id`", "a;b", "#x", "a|b", "é", ""]


def _render(text: str, **variables: Any) -> str:
    return render_piece({"x": text}, "x", variables)


def _refuse(text: str, **variables: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        _render(text, **variables)
    return caught.value


def _plan(pieces: dict[str, str] | None = None, mode: Mode = Mode.slurm, **cluster: Any) -> LaunchPlan:
    config = Config(nodes=2)
    for name, value in cluster.items():
        setattr(config.cluster, name, value)
    facts = make_facts(run_id="r-1", mode=mode, pieces={**OURS, **(pieces or {})})
    return make_plan(config, facts=facts, target=None)


# -- rendering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_is_one_word(value: str) -> None:
    """Whatever a variable holds, the shell reads it as one word."""
    assert shlex.split(_render("echo {{ x }}/end", x=value)) == ["echo", f"{value}/end"]


def test_a_list_is_a_word_for_each_item() -> None:
    """Items are quoted one by one."""
    assert shlex.split(_render("load {{ x }}", x=["a b", "c"])) == ["load", "a b", "c"]


def test_shell_text_is_printed_as_it_is() -> None:
    """What is a command already is not quoted again."""
    assert _render("exec {{ x }}", x=Shell("a 'b c'")) == "exec a 'b c'"


@pytest.mark.parametrize("text", ["{{ nope }}", "{% if nope %}x{% endif %}", "{% for a in nope %}{% endfor %}"])
def test_refuses_a_variable_that_is_not_there(text: str) -> None:
    """A misspelt variable is an error that lists those that there are."""
    error = _refuse(text, mine=1, other=2)
    assert error.what == "the template x uses a variable that is not there"
    assert error.found == "'nope' is undefined"
    assert error.fix == "cluster.vars.NAME=VALUE sets one of your own; there are: mine, other"


@pytest.mark.parametrize(
    ("text", "what", "found"),
    [
        ("a\n{% if %}", "the template x is no jinja2", "line 2: Expected an expression, got 'end of statement block'"),
        ("{{ 1 // 0 }}", "the template x cannot be rendered", "ZeroDivisionError: integer division or modulo by zero"),
        ("{% include 'y' %}", "the template x cannot be rendered", "TemplateNotFound: y"),
        ("{{ none }}", "the template x cannot be rendered", "ValueError: a value is null"),
        ("{{ 'a\\nb' }}", "the template x cannot be rendered", "ValueError: a value holds a line break: 'a\\nb'"),
    ],
)
def test_refuses_what_cannot_be_rendered(text: str, what: str, found: str) -> None:
    """Mistakes in a template are told with its name."""
    error = _refuse(text)
    assert (error.what, error.found) == (what, found)


def test_lines_that_do_nothing_are_left_out() -> None:
    """Comments and blank lines are for the reader of the piece."""
    assert split_commands("# a\n\n  b  \nc # d\n") == ("b", "c # d")


# -- finding ---------------------------------------------------------------------------------------------------------


def test_the_earlier_folder_wins(tmp_path: Path) -> None:
    """A person's own piece takes the place of ours, the others stay."""
    own = tmp_path / "setup/venv.sh.j2"
    own.parent.mkdir()
    own.write_text("mine")
    pieces = read_pieces([tmp_path, find_asset("sbatch_templates")])
    assert pieces["setup/venv.sh.j2"] == "mine"
    assert set(pieces) == set(OURS)


def test_refuses_a_template_that_is_not_there() -> None:
    """The names that there are are told."""
    with pytest.raises(ConfigError) as caught:
        find_piece(OURS, "venf")
    assert caught.value.found == ("cluster.template=venf; there are: apptainer, conda, modules, plain, pyxis, venv")
    assert "sbatch_templates/setup/venf.sh.j2" in caught.value.fix


def test_refuses_a_template_that_is_not_utf_8(tmp_path: Path) -> None:
    """The file is named."""
    (tmp_path / "x.sh.j2").write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match="a template cannot be read") as caught:
        read_pieces([tmp_path])
    assert str(tmp_path / "x.sh.j2") in caught.value.found


# -- around the agents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "given", "lines"),
    [
        ("modules", {"modules": ["gcc/12", "a b"]}, ["module purge", "module load gcc/12", "module load 'a b'"]),
        ("conda", {"conda_env": "t"}, ['eval "$(conda shell.bash hook)"', "conda activate t"]),
        ("venv", {"venv": "/a b"}, ["source '/a b'/bin/activate"]),
        (["venv", "modules"], {"venv": "/v", "modules": []}, ["source /v/bin/activate", "module purge"]),
    ],
)
def test_each_set_up_gives_its_lines(template: Any, given: dict[str, Any], lines: list[str]) -> None:
    """Pieces come in the order in which they are named, and ``cluster.setup`` after them."""
    plan = _plan(template=template, vars=given, setup=["echo last"])
    assert plan.setup == (*lines, "echo last")
    assert make_agent_command(plan).endswith(" agent /usr/bin/python3 -m hpc_multinode.node /home/ada/runs/r-1")


def test_set_up_knows_the_gpus() -> None:
    """A count is a number in the piece, also where gres names the GPUs."""
    config = Config()
    config.cluster.template, config.resources.gres = "mine", "gpu:a:4"
    pieces = {"setup/mine.sh.j2": "{% if gpus_per_node > 2 %}\nexport MANY={{ gpus_per_node }}\n{% endif %}\n"}
    assert make_plan(config, facts=make_facts(pieces=pieces, mode=Mode.slurm), target=None).setup == ("export MANY=4",)


def test_a_container_runs_in_apptainer() -> None:
    """The folders that the run needs are bound, none inside another, and Python is the image's."""
    words = shlex.split(make_agent_command(_plan(container="/i/my image.sif")))
    assert words[:10] == [
        "apptainer", "exec", "--bind", "/home/ada", "--bind", str(PACKAGE), "--pwd", "/home/ada/runs/r-1",
        "/i/my image.sif", "env",
    ]  # fmt: skip
    assert [words[10], *words[words.index("python3") :]] == [
        "PYTHONPATH=/home/ada/runs/r-1/agent", "python3", "-m", "hpc_multinode.node", "/home/ada/runs/r-1",
    ]  # fmt: skip


@pytest.mark.parametrize("package", ["/a/package", "/z/package"])
def test_the_run_s_folders_are_bound_first(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """The same command comes out wherever the package is installed."""
    monkeypatch.setattr("hpc_multinode.wrapping.PACKAGE", Path(package))
    assert f" --bind /home/ada --bind {package} " in make_agent_command(_plan(container="/i/image.sif"))


def test_gpus_are_shown_to_apptainer() -> None:
    """``--nv`` is there where GPUs are asked for."""
    config = Config()
    config.cluster.container, config.resources.gres = "x", "gpu:2"
    plan = make_plan(config, facts=make_facts(mode=Mode.slurm, pieces=OURS), target=None)
    assert "apptainer exec --nv " in make_agent_command(plan)


def test_a_container_by_pyxis_is_options_of_srun() -> None:
    """Image, mounts and folder go to srun, before the agent's command."""
    text = render_slurm(_plan(container="nvcr.io#x:1", template="pyxis"))
    (line,) = (line for line in text.splitlines() if line.startswith("srun "))
    words = shlex.split(line)
    assert words[words.index("--export=ALL") + 1 :][:4] == [
        "--container-image=nvcr.io#x:1",
        f"--container-mounts=/home/ada:/home/ada,{PACKAGE}:{PACKAGE}",
        "--container-workdir=/home/ada/runs/r-1",
        "--no-container-mount-home",
    ]


def test_without_pieces_none_are_needed() -> None:
    """A run that names no template carries none."""
    plan = _plan()
    assert (plan.wrapper, plan.pieces, plan.template_vars) == (None, {}, {})


def test_a_plan_with_pieces_is_read_back() -> None:
    """The nodes read the same plan."""
    plan = _plan(container="x", vars={"a": [1]})
    assert type(plan).from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("cluster", "what"),
    [
        ({"template": ["apptainer", "pyxis"]}, "two templates want to start the agents"),
        ({"template": ["venv", 1]}, "cluster.template is not made of names"),
        ({"template": "plain", "vars": {"cwd": 1}}, "cluster.vars sets a variable that templates get from the run"),
        ({"template": "venv", "vars": {"cwd": 1}}, "cluster.vars sets a variable that templates get from the run"),
        ({"template": "bad"}, "the template wrapper/bad.sh.j2 starts no agent"),
        ({"template": "pyxis", "container": "x", "mode": Mode.local}, "gives options of srun, and there is no srun"),
    ],
)
def test_refuses_pieces_that_do_not_fit(cluster: dict[str, Any], what: str) -> None:
    """What could not start an agent is refused before anything is written."""
    with pytest.raises(ConfigError) as caught:
        _plan({"wrapper/bad.sh.j2": "echo\n"}, **cluster)
    assert what in caught.value.what


def test_refuses_a_folder_that_cannot_be_bound() -> None:
    """A colon separates the two sides of a bind."""
    config = Config(run_root="/data/a:b")
    config.cluster.container = "x"
    with pytest.raises(ConfigError, match="has a comma or a colon in its path") as caught:
        make_plan(config, facts=make_facts(mode=Mode.slurm, pieces=OURS), target=None)
    assert caught.value.found == "/data/a:b/run-1"


def test_the_package_alone_is_linked_into_the_run_folder(tmp_path: Path) -> None:
    """In a container Python finds our package, and nothing that lies beside it on this machine."""
    from hpc_multinode.runs import RunFolder  # noqa: PLC0415

    config = Config(run_root=str(tmp_path))
    config.cluster.container = "x"
    plan = make_plan(config, facts=make_facts(mode=Mode.slurm, pieces=OURS), target=None)
    folder = RunFolder.create(plan, config_text="").path / "agent"
    assert [path.resolve() for path in folder.iterdir()] == [PACKAGE]
    assert folder.stat().st_mode & 0o777 == 0o700


# -- scripts for plain sbatch ----------------------------------------------------------------------------------------


def test_a_standalone_script_asks_for_the_same() -> None:
    """The options are the plan's, and the words are quoted."""
    text = render_standalone(_plan(), OURS, cwd="/home/ada", python="/py thon", words=["name=it's", "--", "$x"])
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert directives == ["#SBATCH --job-name=work", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1"]
    (line,) = (line for line in text.splitlines() if line.startswith("cd "))
    assert shlex.split(line) == [
        "cd", "/home/ada", "&&", "exec", "/py thon", "-m", "hpc_multinode", "name=it's", "--", "$x",
    ]  # fmt: skip


@pytest.mark.parametrize("file", [None, *sorted(find_asset("sbatch_templates").glob("*.sbatch"))])
def test_scripts_are_bash(file: Path | None) -> None:
    """Bash can read them, and every directive stands before the first command."""
    text = render_standalone(_plan(), OURS, cwd="/", python="x", words=[]) if file is None else file.read_text()
    assert text.startswith("#!/bin/bash\n")
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    kinds = [line.startswith("#") for line in text.splitlines() if line and not line.startswith("# ")]
    assert kinds == sorted(kinds, reverse=True)


# -- examples of sites -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["example-modules", "example-container"])
def test_an_example_of_a_site_can_be_rendered(name: str, tmp_path: Path) -> None:
    """The two examples compose and become a script."""
    config = compose_config([f"cluster={name}", f"run_root={tmp_path}"], config_dirs=[])
    assert config.resources.account == "my-project"
    text = render_slurm(make_plan(config, facts=make_facts(mode=Mode.slurm, pieces=OURS), target=None))
    assert "#SBATCH --account=my-project" in text
    assert ("module load cuda/12.4" in text, "apptainer exec" in text) in {(True, False), (False, True)}
