"""The explorer: a plan, or two, as one offline page, whose script reads the plan's own tables."""
