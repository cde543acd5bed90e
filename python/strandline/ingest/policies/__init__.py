"""Capability policies, and their text form. Imports ``time`` and channels."""

from strandline.ingest.policies.bounded import Bounded
from strandline.ingest.policies.composed import Composed
from strandline.ingest.policies.idle import Idle
from strandline.ingest.policies.manifest import Manifest
from strandline.ingest.policies.ordered import Ordered
from strandline.ingest.policies.parser import parse_policy
from strandline.ingest.policies.policy import Observation, Policy
from strandline.ingest.policies.punctuated import Heartbeat, Punctuated

__all__ = [
    "Bounded",
    "Composed",
    "Heartbeat",
    "Idle",
    "Manifest",
    "Observation",
    "Ordered",
    "Policy",
    "Punctuated",
    "parse_policy",
]
