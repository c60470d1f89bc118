"""Data sets and their distribution over clients: sources, partitions, local splits, the backdoor.

:func:`load` reads the pool of samples of a source, :func:`partition` divides it into one part per client, and
:func:`clients` turns each part into a client's local splits. Every random draw uses a named stream, so the split and
the trigger of one client do not depend on the other clients.
"""

from fupareto.data.federate import ClientData, clients
from fupareto.data.partition import partition
from fupareto.data.sources import SOURCES, Dataset, load, status

__all__ = ["SOURCES", "ClientData", "Dataset", "clients", "load", "partition", "status"]
