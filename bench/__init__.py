"""The figures of this project, beside what people would use instead: ``python -m bench [PART ...]``."""
