"""What ranks of a group compute with: calls on their GPUs, how these exchange, keys they keep."""
