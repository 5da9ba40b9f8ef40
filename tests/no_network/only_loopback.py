"""No process speaks to another machine: Python tells of every address that it is asked for, and this one refuses.

An audit hook (PEP 578) sees what a patched ``socket.socket`` would miss, cannot be taken away again, and holds for all
libraries that use Python's sockets. Code in other languages, such as that of torch, goes past it; for that
``test_supply.py`` runs commands without any network.
"""

import ipaddress
import os
import socket
import sys

LOG = "HOMOPHILY_TEST_NETWORK_LOG"  # environment variable: a file to note attempts in
ASKED = {  # events, and where among their arguments the address is
    "socket.connect": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.gethostbyaddr": 0,
}
NAMES = {"", "localhost", "0.0.0.0", "::", socket.gethostname().lower()}  # of this machine


class NetworkForbiddenError(Exception):
    """No OSError, which libraries catch and try again."""


def is_here(address):
    """Whether an address, or the host in it, is this machine."""
    host = address[0] if isinstance(address, tuple) and address else address
    if host is None:  # of a message on a socket that is connected already
        return True
    host = (host.decode(errors="replace") if isinstance(host, bytes) else str(host)).lower()
    if host in NAMES or host.startswith(("/", "\0")):  # the last two: sockets of this machine that have a path
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def refuse(event, arguments):
    """The hook."""
    if event not in ASKED or is_here(arguments[ASKED[event]]):
        return
    what = f"{event} {arguments[ASKED[event]]!r}"
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{what}\n")
    raise NetworkForbiddenError(f"{what}: tests speak to this machine only.")


def install():
    """Refuse from now on; once is enough."""
    if not getattr(sys, "_only_loopback", False):
        sys._only_loopback = True
        sys.addaudithook(refuse)
