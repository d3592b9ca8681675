"""What the documents say is true: commands run, outputs are real, keys, files and texts exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import typing

import pytest

from hpc_multinode.cli.command_line import LIFE_VERBS, parse_command_line
from hpc_multinode.compose import compose_config
from tests import configuration
from tests.conftest import EXAMPLES
from tests.documents import DOCUMENTS, README, ROOT, list_commands, make_comparable, write_files
from tests.texts import HOLE, list_texts

if typing.TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Launcher

HELP = ROOT / "hpc_multinode" / "cli" / "help.txt"
DOCS = [path for path in DOCUMENTS if path.parent.name == "docs"]
MAX_LINES, MAX_COLUMNS = 120, 130
# Who runs the commands of the README that are not run here.
RUN_ELSEWHERE = {
    "python3 -m venv .venv": "the demo of lite on two nodes: test_demo_runs_where_no_work_is_named",
    "tests/run.sh": "what runs this",
    "source .venv/bin/activate": "the shell",
    "python -m tests.slurm_cluster": "tests/slurm/test_readme.py",
    "python -m hpc_multinode render --check": "tests/slurm/test_readme.py",
    "python -m hpc_multinode strategy=pytorch_spawn": "tests/slurm/test_readme.py",
    "python -m hpc_multinode logs -f": "tests/slurm/test_readme.py",
    "python -m hpc_multinode report": "tests/slurm/test_readme.py",
    "python -m hpc_multinode list": "tests/slurm/test_readme.py",
    "python -m hpc_multinode status train": "tests/slurm/test_readme.py",
}


def schema_keys() -> set[str]:
    """Return every key of the schema, dotted, sections too."""
    keys = set(configuration.list_keys())
    return keys | {key.partition(".")[0] for key in keys}


# -- commands --------------------------------------------------------------------------------------------------------


def test_readme_program_prints_what_the_readme_shows(launcher: Launcher) -> None:
    """The first program of the README, started with its command, prints its lines, loss for loss."""
    write_files(README, launcher.cwd, home=launcher.cwd)
    (command,) = (one for one in list_commands(README) if "cluster=local" in one.words and one.printed)
    ended = launcher.run(*command.words)
    assert ended.code == 0, ended.out
    assert make_comparable(ended.out) == make_comparable(command.printed)


def test_readme_failure_is_what_a_failure_looks_like(launcher: Launcher) -> None:
    """The program with one bad batch in it ends as the README shows."""
    text = README.read_text()
    write_files(README, launcher.cwd, home=launcher.cwd)
    (shown,) = re.findall(r"```console\n(FAILED.*?)```", text, re.DOTALL)
    (raised,) = re.findall(r"^        (raise .*)$", shown, re.MULTILINE)
    program = launcher.cwd / "train.py"
    place = "    for step in range(steps):\n"
    program.write_text(
        program.read_text().replace(
            place, f"{place}        if step == 10 and global_rank == 1:\n            {raised}\n"
        )
    )
    ended = launcher.local("strategy=pytorch_spawn", "work.target=train.py:run", "nodes=2")
    assert ended.code == 1, ended.out
    told = ended.out[ended.out.index("FAILED") :]
    assert make_comparable(told) == make_comparable(shown)


def test_readme_torchrun_line_runs(launcher: Launcher) -> None:
    """What the README gives in place of a line of torchrun starts the same script on as many workers, one a GPU."""
    (words,) = re.findall(r"\| `torchrun .*?` \| `python -m hpc_multinode (.*?)` \|", README.read_text())
    (launcher.cwd / "train.py").write_text((EXAMPLES / "torchrun_script.py").read_text().replace("steps", "lr"))
    two_gpus = {"CUDA_VISIBLE_DEVICES": "0,1"}
    ended = launcher.local(*shlex.split(words.replace("--lr 0.1", "--lr 3")), env=two_gpus)
    assert ended.code == 0, ended.out + ended.err
    assert [ended.lines(rank)[0].partition(",")[0] for rank in (0, 1)] == [f"rank {n} of 2: 3 lr" for n in (0, 1)]


def test_readme_verbs_work_on_a_run(launcher: Launcher) -> None:
    """What the table of verbs says to type is understood, for a run of twelve ranks that is over."""
    rows = re.search(r"\| you want to \| type \|\n(.*?)\n\n", README.read_text(), re.DOTALL)
    assert rows is not None
    typed = re.findall(rf"`((?:{'|'.join(LIFE_VERBS)})(?: [^`]*)?)`", rows[1])
    (launcher.cwd / "train.py").write_text("def run(global_rank):\n    print('loss', global_rank)\n")
    ended = launcher.plain("", "work.target=train.py:run", workers=6)
    assert ended.code == 0, ended.out
    for line in typed:
        shown = launcher.run(*shlex.split(line.replace("4711", "train")))
        assert (shown.code, shown.err) == (0, ""), line
    assert launcher.run("logs", "--rank", "3,8-11", "--grep", "loss").out.count("loss") == 5
    assert (launcher.cwd / "page.html").exists()


def test_every_command_of_the_readme_is_run() -> None:
    """No command stands in the README that no test runs."""
    here = [one.line for one in list_commands(README) if "cluster=local" in one.words and one.printed]
    left = [one.line for one in list_commands(README) if one.line not in here]
    assert here
    assert [line for line in left if not line.startswith(tuple(RUN_ELSEWHERE))] == []
    assert [start for start in RUN_ELSEWHERE if not any(line.startswith(start) for line in left)] == []


def test_readme_main_job_is_one_that_is_tested() -> None:
    """The command that the set-up line ends with is the demo of lite on two nodes, which ``test_strategies`` runs."""
    (line,) = re.findall(r"^python3 -m venv .*$", README.read_text(), re.MULTILINE)
    assert line.rpartition("hpc_multinode ")[2].split() == ["cluster=local", "strategy=lite", "nodes=2"]


def test_what_is_a_persons_own_runs_as_the_document_shows(launcher: Launcher) -> None:
    """The executor, strategy, pieces and cluster of ``extending.md`` run, print and render as it says."""
    page = ROOT / "docs" / "extending.md"
    write_files(page, launcher.cwd, home=launcher.cwd)
    executor, strategy, cluster = (one for one in list_commands(page) if "hpc_multinode" in one.line)
    ended = launcher.run(*executor.words)
    assert ended.code == 0, ended.err
    assert make_comparable(ended.out) == make_comparable(executor.printed)
    ended = launcher.run(*strategy.words)
    assert (ended.code, "rank 0 of 1 is ready" in ended.out) == (0, True), ended.err
    assert ended.out.startswith("timing: train.py:run")
    ended = launcher.run(*cluster.words)
    assert ended.code == 0, ended.err
    assert "mkdir -p /scratch/me" in ended.out
    assert "nice -n 5" in ended.out
    api = [sys.executable, "from_python.py"]
    done = subprocess.run(api, cwd=launcher.cwd, env=launcher.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[0] hello" in done.stdout


@pytest.mark.parametrize("path", [*DOCUMENTS, HELP], ids=lambda path: path.name)
def test_commands_of_documents_are_understood(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs, options, groups and keys of every command are there; whole ones compose."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    write_files(path, tmp_path, home=tmp_path)
    dirs = [tmp_path, *(tmp_path / name for name in ("conf",) if (tmp_path / name).is_dir())]
    text = path.read_text().replace("\\\n", " ")
    for line in re.findall(r"python -m hpc_multinode((?: [^`\n|>&#]+|'[^']*')+)", text):
        words = shlex.split(line.lstrip().split("  ")[0].replace("[--json]", "").replace("[OLD NEW]", ""))
        parsed = parse_command_line([word for word in words if word != "..."])
        if parsed.verb in LIFE_VERBS or parsed.is_sweep or "..." in words or "VERB" in line:
            continue
        if path.name != "CONTRIBUTING.md":  # which names what its reader has just added
            compose_config(parsed.overrides, config_dirs=dirs)


# -- what they name --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    """Every relative link of a document names a file that is there."""
    for link in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / link).exists(), link


def test_readme_leads_to_every_document() -> None:
    """No document is known to nobody."""
    assert {path.name for path in DOCS} <= set(re.findall(r"\(docs/([^)#]+)\)", README.read_text()))


@pytest.mark.parametrize("path", [*DOCUMENTS, HELP], ids=lambda path: path.name)
def test_keys_in_documents_are_in_the_schema(path: Path) -> None:
    """A key that a document names can be set."""
    groups = "work|strategy|resources|cluster|launch|stop|restart|requeue|array"
    keys = schema_keys()
    for key in re.findall(rf"(?<![\w/.])((?:{groups})\.[a-z_]+)(?=[=\s`,.])", path.read_text()):
        if not key.endswith((".py", ".json", ".md", ".yaml", ".sh", ".pkl")):
            assert key in keys, key


def test_table_of_keys_is_the_schemas() -> None:
    """``docs/configuration.md`` has every key, default and text of the schema: python -m tests.configuration."""
    page = configuration.PAGE.read_text()
    assert configuration.render_page(page) == page


def test_contributing_tells_where_each_module_is_for() -> None:
    """The table names files that are there, and every module at the top of the package."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where does my change go?")[2].partition("\n## ")[0]
    package = ROOT / "hpc_multinode"
    named = set(re.findall(r"`([a-z_/]+\.py)`", table))
    assert [name for name in sorted(named) if not any((root / name).is_file() for root in (package, ROOT))] == []
    assert {path.name for path in package.glob("*.py")} - named <= {"__main__.py"}


def test_every_key_of_the_schema_says_what_it_is() -> None:
    """Each key has a comment above it, which is its text in the table."""
    assert [key for key, (_, text) in configuration.list_keys().items() if not text] == []


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_documents_are_short(path: Path) -> None:
    """At most 120 lines beside the generated table, and 130 columns beside rows of tables, which cannot be cut."""
    before, _, rest = path.read_text().partition(configuration.BEGIN)
    lines = (before + rest.partition(configuration.END)[2]).splitlines()
    assert len(lines) <= MAX_LINES
    assert [line for line in lines if len(line) > MAX_COLUMNS and not line.startswith("|")] == []


# -- texts -----------------------------------------------------------------------------------------------------------


def test_texts_in_troubleshooting_are_ours() -> None:
    """What "you see" quotes is printed by the package, word for word."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    ours = [one.text for one in list_texts()]
    first_cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("| ")]
    quoted = [text for cell in first_cells for text in re.findall(r"`([^`]+)`", cell) if len(text.split()) > 2]
    assert len(quoted) > 30
    for text in quoted:
        pieces = [piece for piece in re.split(r"'?\.\.\.'?", text) if piece.strip()]
        assert any(all(piece in one for piece in pieces) for one in ours), text


def test_an_error_says_what_to_do() -> None:
    """A fix is more than a word of encouragement; what is wrong is one line without a full stop."""
    texts = list_texts()
    assert len(texts) > 500
    for one in texts:
        if one.part == "what":
            assert not one.text.removesuffix(HOLE).endswith("."), one
            assert "\n" not in one.text, one
        if one.part == "fix":
            assert one.text.strip() not in {"", "mend it", "give one", "try again"}, one


def test_package_says_its_version_once() -> None:
    """``--version`` prints the version of the package."""
    command = [sys.executable, "-m", "hpc_multinode", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"hpc_multinode \d+\.\d+\.\d+\n", printed.stdout)
