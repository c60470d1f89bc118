"""Evidence: certificates of requests, models and measurements, their signatures, and the ledger of requests."""

from fupareto.evidence.check import Against, verify
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding
from fupareto.evidence.issue import certify
from fupareto.evidence.keys import signer, trusted
from fupareto.evidence.ledger import Ledger
from fupareto.evidence.ledgers import deployed
from fupareto.evidence.remeasure import TOLERANCE, compare
from fupareto.evidence.schema import describe, load

__all__ = [
    "FAILED",
    "NOT_CHECKED",
    "OK",
    "TOLERANCE",
    "Against",
    "Finding",
    "Ledger",
    "certify",
    "compare",
    "deployed",
    "describe",
    "load",
    "signer",
    "trusted",
    "verify",
]
