"""The first all-reduce as a Hydra app, for hydra-submitit-launcher."""

from __future__ import annotations

from typing import Any

import hydra


@hydra.main(version_base=None, config_path=None)
def main(_: Any) -> None:  # noqa: ANN401 - Hydra's own
    """Reduce once in a task of submitit's."""
    from bench.works.reduce import reduce_with_submitit  # noqa: PLC0415 - only in the job

    reduce_with_submitit()


if __name__ == "__main__":
    main()
