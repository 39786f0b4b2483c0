"""Attention by definition, and the keywords and formats that all calls share."""
