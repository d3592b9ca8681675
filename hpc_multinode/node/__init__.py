"""The node side: one agent on each node, and the workers that it starts."""
