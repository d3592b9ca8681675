"""Login side: carry a plan out, on this machine or on Slurm."""
