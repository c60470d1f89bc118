"""The small ``flwr-clientapp``: asks the warm process to run the command, and runs the ordinary one where it cannot.

Runs in an isolated Python without site-packages, for speed: only the standard library, and nothing of this package.
"""

import array
import json
import os
import socket
import sys

PATIENCE = 30.0  # seconds to wait for a warm process that is starting itself


def ask(path: str, arguments: list[str]) -> int | None:
    """Have the warm process run the command with our arguments, environment, directory and standard streams.

    Returns:
        The exit code; None if the warm process is not there, or does not want to.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(PATIENCE)
            link.connect(path)
            request = json.dumps({"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()})  # noqa: PTH109
            data = request.encode()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
            link.sendmsg([len(data).to_bytes(4, "big")], rights)
            link.sendall(data)
            if link.recv(1) != b"y":
                return None
            link.settimeout(None)
            code = link.recv(1)  # nothing if the warm process was killed, and the command with it
            return code[0] if code else 1
    except OSError:
        return None


def main() -> None:
    """Run ``flwr-clientapp``; the first two arguments are the socket, and the ordinary command."""
    path, ordinary, *arguments = sys.argv[1:]
    code = ask(path, arguments)
    if code is None:
        os.execv(ordinary, [ordinary, *arguments])
    sys.exit(code)


if __name__ == "__main__":
    main()
