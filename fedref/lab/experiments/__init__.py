"""Experiments: from a list of assignments to results. A module imports only those above it:

names          what names stand for: fedref's own things, MODULE:NAME, objects
config         the Experiment: values that are assigned one after the other, read from and written as TOML
unit           one algorithm at one point of the sweep with one seed: its rounds and its record
loading        the data, split and model of a unit; finds all mistakes before any work
seal           what a unit's numbers are computed from, and the environment
run_directory  the files of a run, and who owns them
parallel       processes of this machine, or an executor, that share the units
results        the Run: rows of dictionaries, and the files and views that are made of them
progress       progress reports: a bar, lines, a log
run            completes the file of every unit; `fedref.run`
"""
