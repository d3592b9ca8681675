"""What each strategy does in a worker around the work."""
