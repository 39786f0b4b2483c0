"""A group of processes that run the ranks of plans: launch, meeting, agreement, failure."""
