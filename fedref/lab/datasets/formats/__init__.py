"""Readers of files, one module per format. A reader takes a path and returns named arrays (`Raw`)."""
