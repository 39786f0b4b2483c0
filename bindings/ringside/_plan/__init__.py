"""A Plan and what is told of it: its JSON, its drawing, its explanation."""
