"""Eight silent faults of a ring, each beside its cure, and what sees them."""
