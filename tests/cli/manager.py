# SPDX-License-Identifier: GPL-2.0-or-later
"""A service manager's ear: writes what sd_notify(3) says at a socket into a file."""
import socket
import sys

ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ear.bind(sys.argv[1])
with open(sys.argv[2], "w") as told:
    while True:
        told.write(ear.recv(4096).decode() + "\n")
        told.flush()
