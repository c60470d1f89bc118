"""What can somebody else check later? A certificate that ties a request to models, numbers and an order."""

from fupareto.certificate.again import TOLERANCE, compare
from fupareto.certificate.check import verify
from fupareto.certificate.findings import FAILED, NOT_CHECKED, OK, Finding
from fupareto.certificate.issue import certify
from fupareto.certificate.schema import describe, load

__all__ = ["FAILED", "NOT_CHECKED", "OK", "TOLERANCE", "Finding", "certify", "compare", "describe", "load", "verify"]
