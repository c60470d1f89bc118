"""Certificates: they tie a request to models, measurements and an order, and can be verified later."""

from fupareto.evidence.check import verify
from fupareto.evidence.findings import FAILED, NOT_CHECKED, OK, Finding
from fupareto.evidence.issue import certify
from fupareto.evidence.remeasure import TOLERANCE, compare
from fupareto.evidence.schema import describe, load

__all__ = ["FAILED", "NOT_CHECKED", "OK", "TOLERANCE", "Finding", "certify", "compare", "describe", "load", "verify"]
