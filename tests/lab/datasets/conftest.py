"""Tests of data never see the user's own data folder or cache, nor the network."""

from dataset_files import alone, digits, real

__all__ = ["alone", "digits", "real"]
