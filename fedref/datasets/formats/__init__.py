"""Readers of the published file formats, one module per format."""
