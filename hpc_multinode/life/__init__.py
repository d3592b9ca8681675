"""Login side: the life of a run after it was submitted, from its folder, the registry and Slurm's words."""
