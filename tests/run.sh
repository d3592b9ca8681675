#!/usr/bin/env bash
# Passes all tests on a machine with Python 3.10 or newer and nothing else of ours: makes its own virtual environment,
# installs what is missing into it, checks style and types, runs everything. Words given go on to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${HPC_MULTINODE_TEST_VENV:-.venv-tests}
python=${PYTHON:-python3}
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
# hatchling and editables: the wheel is built without a network of its own.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
    hatchling editables --editable '.[test]'

"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
# -x: the first failure ends it. Three processes, also on two cores: two have a cluster each, and mostly wait for Slurm.
# pytest's closing line is the last one printed.
exec "$venv/bin/python" -m pytest -x -n 3 "$@"
