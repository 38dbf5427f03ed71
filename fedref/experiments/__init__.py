"""Experiments: configuration, units of work, run directories, results."""
