"""Measurements on one GPU, beside its peers."""
