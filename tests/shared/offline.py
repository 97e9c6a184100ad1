"""A network of nothing but this machine's own loopback, for what must need no other."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of unshare(2) and setns(2), which Python has from 3.12 on."""
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
"""SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP."""
ELSEWHERE = ("192.0.2.1", 443)
"""An address that is nobody's (RFC 5737)."""


@contextmanager
def offline() -> Iterator[bool]:
    """Cut this thread, and what it starts meanwhile, off from every network; False where this user may not.

    Then only the proxies of `loops.environment` stand between a process and the network.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        really = cut(before)
        try:
            assert not (really and reaches(ELSEWHERE))
            yield really
        finally:
            if really:
                call("setns", before, NEW_NETWORK)
    finally:
        os.close(before)


def cut(before: int) -> bool:
    """Into a network of this thread's own; back again if its loopback cannot be had."""
    try:
        call("unshare", NEW_NETWORK)
    except OSError:
        return False
    try:
        loopback_up()
    except OSError:
        call("setns", before, NEW_NETWORK)
        return False
    return True


def call(name: str, *arguments: int) -> None:
    """A system call of the C library's. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def loopback_up() -> None:
    with socket.socket() as handle:
        asked = struct.pack("16sH14x", b"lo", 0)
        name, flags = struct.unpack("16sH14x", fcntl.ioctl(handle, GET_FLAGS, asked))
        fcntl.ioctl(handle, SET_FLAGS, struct.pack("16sH14x", name, flags | UP))


def reaches(address: tuple[str, int]) -> bool:
    """Whether there is any way there, whatever lies at its end."""
    with socket.socket() as handle:
        handle.settimeout(0.01)
        return handle.connect_ex(address) != errno.ENETUNREACH
