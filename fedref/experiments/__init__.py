"""Experiments: from a file to results. From the ground up:

names          what a name stands for: algorithms, models, data, fedref's own or anybody's
config         the Experiment, and TOML with settings on top of it
metrics        the columns of the tables, and what they mean
parallel       other processes: a pool, a Dask cluster, a round's clients over either
unit           one algorithm at one point of the sweep with one seed: its rounds and its record
loading        data, split and model of an experiment; where every mistake is met before any work
progress       progress reports: a bar, lines, a log
run_directory  what is in it, and who may write there
resume         a unit goes on from its checkpoint; what must be as it was
results        the Run: arrays, tables, what a notebook shows
dry_run        what a run would cost
run            all units to their end, here or spread over workers; `fedref.run`
"""
