"""A real Slurm cluster on one machine, for the tests and for people: ``python -m tests.slurm_cluster up``."""

from tests.slurm_cluster.cluster import SlurmCluster
from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.settings import ClusterSettings, SlurmVersion, Tracker

__all__ = ["ClusterError", "ClusterSettings", "SlurmCluster", "SlurmVersion", "Tracker"]
