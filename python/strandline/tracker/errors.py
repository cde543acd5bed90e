"""The errors of capabilities, graphs and the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.errors import CapabilityError, CycleError, GraphError, ProtocolError, SummaryError
from strandline.time.domain import Time, TimeDomain
from strandline.time.path.summary import PathSummary, Summaries


def capability_backwards(domain: TimeDomain, held: Time, time: Time) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_BACKWARDS",
        f"A capability at {domain.format(held)} cannot be delayed to {domain.format(time)}, which is not at or after it.",
        "Delay a capability only to later times.",
    )


def capability_backwards_for_output(
    domain: TimeDomain, message: Time, time: Time, output: int, summaries: Summaries
) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_BACKWARDS",
        f"A message at {domain.format(message)} allows no capability at {domain.format(time)} "
        f"for output {output}, whose path summaries are {summaries}.",
        "Request a time at or after a result of these summaries for the message's time.",
    )


def capability_dropped(domain: TimeDomain, time: Time) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_DROPPED",
        f"The capability at {domain.format(time)} was dropped, so it cannot be used.",
        "Clone or delay a capability before you drop it.",
    )


def capability_dropped_with_message(domain: TimeDomain, time: Time) -> CapabilityError:
    return CapabilityError(
        "STRANDLINE_CAPABILITY_DROPPED",
        f"The message at {domain.format(time)} was handled, so its capability has ended.",
        "Retain a capability while the message is handled.",
    )


def graph_cycle(names: Iterable[str]) -> CycleError:
    return CycleError(
        "STRANDLINE_GRAPH_CYCLE",
        f"The cycle {' → '.join(names)} does not advance times.",
        "Add a feedback to the cycle that strictly advances a coordinate.",
    )


def graph_double_edge(start: str, end: str) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_DOUBLE_EDGE",
        f"The edge {start} → {end} exists already.",
        "Add each edge once: its messages would count twice.",
    )


def graph_invalid_backwards(paths: Summaries, index: int) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_INVALID",
        f"The summaries {paths} of node {index} move times backwards.",
        "Give summaries that leave times as they are or advance them.",
    )


def graph_invalid_domain(paths: Summaries, index: int, domain: TimeDomain) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_INVALID",
        f"The summaries {paths} of node {index} are not all of the graph's domain {domain}.",
        "Make them with advance or identity of that domain.",
    )


def graph_invalid_inputs(index: int, inputs: int, summaries: int) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_INVALID",
        f"Node {index} has {inputs} inputs, but summaries for {summaries} inputs.",
        "Give one mapping from outputs to summaries for each input.",
    )


def graph_invalid_path(child: str, scope: str) -> GraphError:
    return GraphError("STRANDLINE_GRAPH_INVALID", f"{child} in {scope} is not a scope.", "Give a path of nested scopes.")


def graph_invalid_ports(index: int, inputs: int, outputs: int) -> GraphError:
    return GraphError("STRANDLINE_GRAPH_INVALID", f"Node {index} has {inputs} inputs and {outputs} outputs.", "Give 0 or more.")


def graph_unknown_port(name: str, node: int, ports: int, kind: str, port: int) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_UNKNOWN_PORT",
        f"{name} (node {node}) has {ports} {kind}s, so there is no {kind} {port}.",
        "Ports count from 0.",
    )


def graph_unknown_port_added_late(location: object) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_UNKNOWN_PORT",
        f"{location} was added after the tracker was built.",
        "Build the tracker when the graph is complete.",
    )


def graph_unknown_port_of_node(node: int, nodes: int) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_UNKNOWN_PORT",
        f"There is no node {node}. The graph has {nodes} nodes.",
        "Use an index that add_node returned.",
    )


def graph_unknown_port_of_summary(index: int, outputs: int, input_port: int, output: int) -> GraphError:
    return GraphError(
        "STRANDLINE_GRAPH_UNKNOWN_PORT",
        f"Node {index} has {outputs} outputs, but its input {input_port} has summaries to output {output}.",
        "Outputs count from 0.",
    )


def protocol_gap(number: int, worker: int, held: int) -> ProtocolError:
    return ProtocolError(
        "STRANDLINE_PROTOCOL_GAP",
        f"Batch {number} of worker {worker} arrived, but the view holds only batches up to {held}.",
        "Deliver the batches of each worker in order.",
    )


def protocol_unknown_sender(number: int, worker: int, workers: int) -> ProtocolError:
    return ProtocolError(
        "STRANDLINE_PROTOCOL_UNKNOWN_SENDER",
        f"Batch {number} comes from worker {worker}, but there are {workers} workers.",
        "Workers count from 0.",
    )


def summary_invalid_domain(domain: TimeDomain) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"{domain} is not the domain of a nested scope.",
        "Make the refinement with Refinement.nested.",
    )


def summary_invalid_path(path: PathSummary, domain: TimeDomain) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"{path} is not a path summary of {domain}.",
        "Make it with advance or identity of that domain.",
    )


def summary_invalid_region(outer: TimeDomain) -> SummaryError:
    return SummaryError(
        "STRANDLINE_SUMMARY_INVALID",
        f"A region over {outer} has no coordinate of its own to advance.",
        "Nest a scope with a coordinate, or name the outer coordinate that a round advances.",
    )
