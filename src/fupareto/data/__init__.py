"""Which data do the clients hold: sources, partitions over clients, local splits, the backdoor.

The pool of a source (:func:`load`) is cut into one part per client (:func:`partition`), and each part becomes
a client's local splits (:func:`clients`). Every draw comes from a named stream, so a client's split and
trigger do not depend on what was drawn for the others.
"""

from fupareto.data.federate import ClientData, clients
from fupareto.data.partition import partition
from fupareto.data.sources import SOURCES, Dataset, load, status

__all__ = ["SOURCES", "ClientData", "Dataset", "clients", "load", "partition", "status"]
