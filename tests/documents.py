"""What the documents hold: files, commands with what they print, and links, so that tests can try them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# A folder that a person has by nature, and what stands for it here.
OWN_FOLDER = "~/.config/hpc_multinode/"
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"`([\w~./-]+\.\w+)`[^`]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a document.

    Attributes:
        line: As it is typed, lines that go on joined.
        printed: The lines below it, where the document shows some.
    """

    line: str
    printed: str = ""

    @property
    def words(self) -> list[str]:
        """The words after ``python -m hpc_multinode``."""
        return shlex.split(self.line.partition("hpc_multinode")[2])


def list_blocks(path: Path) -> list[tuple[str, str, str]]:
    """Return language, text and file name of each block; the name is the last one in backticks in the line above."""
    text = path.read_text()
    found = []
    for block in _FENCE.finditer(text):
        above = text[: block.start()].rstrip("\n").rpartition("\n\n")[2].replace("\n", " ")
        name = _NAME.search(above) if above.endswith(":") else None
        found.append((block[1], block[2], name[1] if name else ""))
    return found


def list_commands(path: Path) -> list[Command]:
    """Return what stands behind ``$`` in consoles, and each line of blocks of shell."""
    commands = []
    for language, text, name in list_blocks(path):
        if language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, printed = part.partition("\n")
                commands.append(Command(line=line, printed=printed))
        elif language == "bash" and not name and not text.startswith("#!"):
            commands += [Command(line=line) for line in text.replace("\\\n", "").splitlines() if line]
    return commands


def write_files(path: Path, folder: Path, *, home: Path) -> None:
    """Write the files that a document shows.

    Args:
        path: The document.
        folder: Where its relative names begin.
        home: What stands for ``~/.config/hpc_multinode``.
    """
    for language, text, name in list_blocks(path):
        if name and language != "console":
            file = home / name.removeprefix(OWN_FOLDER) if name.startswith("~") else folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def make_comparable(lines: str) -> list[str]:
    """Return the lines in an order of their own, with ids, times, ports and names of machines left out."""
    patterns = {
        r"\d{8}-\d{6}-[0-9a-f]{4}": "ID",
        r"\d+ min \d+ s|\d+(\.\d+)? s\b": "TIME",
        r"\bpid \d+": "pid N",
        r"\bjob \d+|(?<=/)\d+(?=_0_log)|(status|logs -f|cancel) \d+": "JOB",
        r"\bnode (\d) [\w-]+": r"node \1 HOST",
        r'File ".*/': 'File "',
    }
    for pattern, stands_for in patterns.items():
        lines = re.sub(pattern, stands_for, lines)
    # How often a waiting job is told of depends on how long it waits.
    return sorted(line.rstrip() for line in lines.splitlines() if not line.startswith("JOB is "))
