"""What is measured; nothing is timed before it is checked."""
