"""One round: the loop over clients and steps, evaluation after it, and what it costs."""

from fedref.rounds.local_data import LocalData, gather
from fedref.rounds.loop import run_client, run_clients, run_round
from fedref.rounds.stack import run_stacked

__all__ = ["LocalData", "gather", "run_client", "run_clients", "run_round", "run_stacked"]
