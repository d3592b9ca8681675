"""What the contestants run: the same few lines for each, which tell when the first all-reduce was over."""
