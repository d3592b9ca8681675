"""An executor of a person's own, and a work that can tell it was used."""

from hpc_multinode import RunWorkExecutor

STATE = []


class Noting(RunWorkExecutor):
    def setup(self, context):
        STATE.append(f"set up {context.global_rank}")

    def run(self, work, context):
        return work()

    def teardown(self, context):
        print("torn down", context.global_rank)


def work():
    print("; ".join(STATE))
