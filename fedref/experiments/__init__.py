"""Experiments: from a TOML file to results. A module imports only those above it:

names          finds the algorithm, model or data that a name stands for
config         the Experiment, and how it is read from TOML with settings on top
metrics        the columns of the tables, and what they mean
parallel       work in other processes: a pool, and the clients of a round over any executor
unit           one algorithm at one point of the sweep with one seed: its rounds and its record
loading        the data, split and model of an experiment; finds all mistakes before any work
progress       progress reports: a bar, lines, a log
run_directory  the files of a run directory, and its lock
resume         continues a unit from its checkpoint, if data and split are unchanged
results        the Run: arrays, tables, what a notebook shows
run            runs all units, in this process or spread over workers; `fedref.run`
"""
