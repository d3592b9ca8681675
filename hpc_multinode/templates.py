"""The pieces of ``sbatch_templates``: jinja2 texts that a site edits, rendered into shell. Rendering is pure.

Whatever ``{{ }}`` prints is quoted as one shell word, a list as one word for each item, so that no value is read as a
command; write it bare, without quotes around. jinja2 is imported where a piece is rendered, and nowhere else.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDER = "sbatch_templates"
SETUP, WRAPPER = "setup", "wrapper"

_SUFFIX = ".j2"


class Shell(str):
    """Text that is shell already, and is printed as it is."""

    __slots__ = ()


def read_pieces(folders: Sequence[Path]) -> dict[str, str]:
    """Read all pieces of some folders.

    Args:
        folders: Folders of pieces, the first wins for equal names.

    Returns:
        Text by path below the folder, such as ``setup/venv.sh.j2``.

    Raises:
        ConfigError: A file is not UTF-8 or cannot be read.
    """
    pieces: dict[str, str] = {}
    for folder in reversed(folders):
        for file in sorted(folder.rglob(f"*{_SUFFIX}")):
            try:
                pieces[file.relative_to(folder).as_posix()] = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    what="a template cannot be read", found=f"{file}: {error}", fix="write it in UTF-8, and readable"
                ) from None
    return pieces


def find_piece(pieces: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return kind and path of a piece that is given by its name.

    Args:
        pieces: What ``read_pieces`` returns.
        name: Such as ``venv``.

    Raises:
        ConfigError: There is none of that name.
    """
    for kind in (SETUP, WRAPPER):
        path = f"{kind}/{name}.sh{_SUFFIX}"
        if path in pieces:
            return kind, path
    there = [path.removesuffix(f".sh{_SUFFIX}").rpartition("/")[2] for path in pieces if path.count("/") == 1]
    raise ConfigError(
        what=f"there is no template {name!r}",
        found=f"cluster.template={name}; there are: {', '.join(sorted(there))}",
        fix=f"choose one of them, or add {FOLDER}/{SETUP}/{name}.sh{_SUFFIX} to a configuration folder of your own",
    )


def render_piece(pieces: Mapping[str, str], path: str, variables: Mapping[str, Any]) -> str:
    """Render a piece into shell text.

    Args:
        pieces: What ``read_pieces`` returns; a piece may include others.
        path: Which one.
        variables: Values by name; ``Shell`` is printed as it is, everything else quoted.

    Raises:
        ConfigError: It is no jinja2, uses a variable that is not there, or fails.
    """
    import jinja2  # noqa: PLC0415 - only runs with a template pay for it

    environment = jinja2.Environment(  # noqa: S701 - no HTML: ``finalize`` quotes for the shell
        loader=jinja2.DictLoader(dict(pieces)),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    try:
        return environment.get_template(path).render(**variables)
    except jinja2.UndefinedError as error:
        names = ", ".join(sorted(variables))
        raise ConfigError(
            what=f"the template {path} uses a variable that is not there",
            found=str(error),
            fix=f"cluster.vars.NAME=VALUE sets one of your own; there are: {names}",
        ) from None
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(
            what=f"the template {error.name} is no jinja2",
            found=f"line {error.lineno}: {error.message}",
            fix="mend that line; sbatch_templates/README.md tells what a template may hold",
        ) from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ConfigError(
            what=f"the template {path} cannot be rendered",
            found=f"{type(error).__name__}: {error}",
            fix="look at the value that is named: what is printed is a text or a list, without line breaks",
        ) from None


def split_commands(text: str) -> tuple[str, ...]:
    """Return the lines of a rendered piece that do something, one command each."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _quote(value: object) -> str:
    if isinstance(value, Shell):
        return value
    if isinstance(value, (list, tuple)):
        return " ".join(_quote(item) for item in value)
    text = str(value)  # a variable that is not there raises here
    if value is None or not text.isprintable():
        msg = "a value is null" if value is None else f"a value holds a line break: {text!r}"
        raise ValueError(msg)
    return shlex.quote(text)
