"""What is drawn, described once (`sources`), by NumPy or by Hypothesis, which shrinks it (`shrinking`)."""
