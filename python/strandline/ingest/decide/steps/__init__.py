"""The steps of a decision: change of policy, observations, silence, parked rows, entry. They import the rest of ``decide``."""
