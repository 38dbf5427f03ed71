"""One round: the loop over clients and steps, evaluation after it, and what it costs."""

from fedref.rounds.loop import gather, run_client, run_clients, run_round, run_stacked

__all__ = ["gather", "run_client", "run_clients", "run_round", "run_stacked"]
