"""The figures of this project, measured as ratios in one run: ``python -m bench [NAME ...]``."""
