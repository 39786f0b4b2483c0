"""The device half of a group: what its processes do on their GPUs, and how these exchange."""
