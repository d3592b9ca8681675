"""Slurm's own words: its node lists, variables and counts."""
