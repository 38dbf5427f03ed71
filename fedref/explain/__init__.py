"""From an equation to its line, its numbers and its picture: all of it taken from the code that runs."""
