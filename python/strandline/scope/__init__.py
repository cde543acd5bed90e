"""Scopes: a set of channels and the queries between them, durable beside them, that one tracker reasons about."""

from strandline.scope.cut import Cut
from strandline.scope.definition import ScopeChannel, ScopeQuery
from strandline.scope.scope import Scope, ScopeHold

__all__ = ["Cut", "Scope", "ScopeChannel", "ScopeHold", "ScopeQuery"]
