"""Loops over channels: what may still come round, and the frontier that follows. No Spark here."""

from strandline.loop.entered import Entered
from strandline.loop.graph import Arrival, LoopGraph, LoopQuery
from strandline.loop.query_state import QueryState, arrivals_of
from strandline.loop.rounds import Rounds
from strandline.loop.taken import Taken
from strandline.loop.waiting import Waiting

__all__ = ["Arrival", "Entered", "LoopGraph", "LoopQuery", "QueryState", "Rounds", "Taken", "Waiting", "arrivals_of"]
