"""RFC 3161 timestamps of certificates: an authority signs that the file existed at a time.

Needs the package rfc3161-client (the extra ``timestamps``).
"""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fupareto.errors import UserError
from fupareto.evidence.findings import FAILED, OK, Finding
from fupareto.evidence.reading import read
from fupareto.files import put

SUFFIX = ".tsr"
WAIT = 30.0  # seconds


def stamp_of(certificate: Path) -> Path:
    """Return the path of the timestamp of a certificate."""
    return certificate.with_name(certificate.stem + SUFFIX)


def _client() -> Any:
    try:
        import rfc3161_client
    except ImportError as error:
        raise UserError(
            "timestamps need the package rfc3161-client; install it: pip install 'fupareto[timestamps]'"
        ) from error
    return rfc3161_client


def stamp(certificate: Path, url: str) -> Path:
    """Ask an authority for a timestamp of a certificate's file, and write it beside the certificate.

    Args:
        certificate: The certificate.
        url: HTTP address of the authority.
    """
    client, target = _client(), stamp_of(certificate)
    if not url.startswith(("http://", "https://")):
        raise UserError(f"a timestamp authority has an address that begins with https://, not {url!r}")
    builder = client.TimestampRequestBuilder().data(read(certificate))
    asked = builder.hash_algorithm(client.HashAlgorithm.SHA256).build()
    headers = {"Content-Type": "application/timestamp-query"}
    try:
        request = urllib.request.Request(url, asked.as_bytes(), headers)
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            data = answer.read(2**20)
        response = client.decode_timestamp_response(data)
        if response.tst_info.nonce != asked.nonce:
            raise ValueError("it answered another question")
        put(target, data)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise UserError(f"no timestamp from {url}: {error}; the certificate itself is written") from error
    return target


def check(certificate: Path, authorities: Path) -> Finding:
    """Check the timestamp of a certificate.

    Args:
        certificate: The certificate.
        authorities: PEM file of the root certificates of timestamp authorities that are trusted.
    """
    from cryptography import x509

    client = _client()
    try:
        roots = x509.load_pem_x509_certificates(read(authorities))
        response = client.decode_timestamp_response(read(stamp_of(certificate)))
        builder = client.VerifierBuilder()
        for root in roots:
            builder = builder.add_root_certificate(root)
        builder.build().verify_message(response, read(certificate))
    except (ValueError, client.VerificationError) as error:
        return Finding(FAILED, "timestamp", f"The timestamp does not hold for this certificate: {error}.")
    time = response.tst_info.gen_time
    return Finding(OK, "timestamp", f"It existed at {time.isoformat()}, by the clock of a timestamp authority.")
