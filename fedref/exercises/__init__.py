"""Exercises: a file of fedref with one line missing, and a check that says what kind of mistake was
made, never what is right.

`catalogue` says what is missing where; `files` makes the student's file from the source that runs;
`answers` runs it in a process of its own; `diagnosis` reads the kind of mistake off the error.
"""
