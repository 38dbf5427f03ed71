"""Readers of the published file formats, one file a format."""
