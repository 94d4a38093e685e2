# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections to the control socket that misbehave. rude.py SOCKET WHAT"""
import json
import socket
import sys
import time

PATH = sys.argv[1]


def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(PATH)
    s.settimeout(30)
    return s


def line(s):
    """The next answer, or None at the end of the connection."""
    data = b""
    while not data.endswith(b"\n"):
        try:
            more = s.recv(1)
        except ConnectionResetError:
            more = b""
        if not more:
            assert not data, f"half an answer: {data!r}"
            return None
        data += more
    return json.loads(data)


def ask(data, s=None):
    """The answer to a line of bytes, or to an object."""
    own = s is None
    s = s or connect()
    if isinstance(data, dict):
        data = json.dumps(data).encode()
    s.sendall(data + b"\n")
    answer = line(s)
    if own:
        s.close()
    return answer


def refused(data, code, text=""):
    answer = ask(data)
    assert answer["ok"] is False, (data, answer)
    assert answer["error"]["code"] == code, (data, answer)
    assert text in answer["error"]["message"], (data, answer)


def good(s=None):
    answer = ask({"command": "version"}, s)
    assert answer["ok"] is True, answer


def garbage():
    for data in (b"", b"hello", b"{", b"{}", b"[]", b"[1]", b"null", b"3", b'"list"', b"\xff\xfe",
                 b'{"command":"list"', b'{"command":"list"}}', b'{"command":"list"} x',
                 b'{"command":"list","command":"list"}', b'{"command":1}', b'{"command":null}',
                 b'{"command":["list"]}', b'{"command":"li\x00st"}', b'{"command":"li\\u0000st"}',
                 b'{"cmd":"list"}', b"[" * 60000, b'{"a":' * 10000, b"\x00" * 100,
                 b"GET / HTTP/1.1\r"):
        refused(data, "bad-request")
        good()
    for name in ("", "LIST", "list ", "x" * 1000, "\u00e4" * 100, "\U0001f600" * 50):
        refused({"command": name}, "unknown-command")
    # A connection lives on after an error.
    s = connect()
    for _ in range(100):
        assert ask(b"nonsense", s)["ok"] is False
        good(s)
    # The last line needs its end.
    s = connect()
    s.sendall(b'{"command":"list"}')
    s.shutdown(socket.SHUT_WR)
    assert "newline" in line(s)["error"]["message"]
    assert line(s) is None
    # And is answered when it has it, though nothing more will come.
    s = connect()
    s.sendall(b'{"command":"list"}\n')
    s.shutdown(socket.SHUT_WR)
    assert line(s)["ok"] is True
    assert line(s) is None


def values():
    bad = "bad-request"
    refused({"command": "list", "clint": "vm1"}, bad, '"list" has no key "clint"')
    refused({"command": "list", "client": "vm1"}, bad, "has no key")
    refused({"command": "stat", "client": 1}, bad, "must be a string")
    refused({"command": "stat", "client": "vm2"}, "no-such-client")
    refused({"command": "stat", "client": ""}, "no-such-client")
    refused({"command": "stat", "client": "\u00e4" * 1000}, "no-such-client")
    refused({"command": "set"}, bad, "nothing to set")
    refused({"command": "set", "client": "vm1"}, bad, "nothing to set")
    refused({"command": "set", "maximum": 1}, bad, "go with a client")
    refused({"command": "set", "client": "vm1", "pool_max": 1}, bad, "go with a client")
    refused({"command": "set", "maximum": 1, "pool_max": 1}, bad, "go with a client")
    for value in ("1G", -1, 1.5, None, True, [1], {}):
        refused({"command": "set", "client": "vm1", "maximum": value}, bad, '"maximum" must be')
    refused(b'{"command":"set","client":"vm1","maximum":99999999999999999999}', bad)
    refused(b'{"command":"set","client":"vm1","maximum":1e300}', bad)
    refused({"command": "set", "client": "vm1", "weight": 10001}, bad)
    refused({"command": "set", "client": "vm1", "weight": 1 << 32}, bad)
    refused({"command": "set", "pool_max": 0}, bad)
    for command in ("freeze", "thaw", "flush"):
        refused({"command": command}, bad, "either")
        refused({"command": command, "all": False}, bad, "either")
        refused({"command": command, "all": True, "client": "vm1"}, bad, "either")
        refused({"command": command, "all": 1}, bad, "true or false")
    refused({"command": "reclaim"}, bad, 'needs the key "bytes"')
    refused({"command": "reclaim", "bytes": 0}, bad)
    refused({"command": "domain", "domain": 7}, bad, "must be a string")
    refused({"command": "domain-attach"}, bad, 'needs the key "domain"')
    refused({"command": "domain-detach", "domain": "a", "timeout_ms": 3600001}, bad)
    refused({"command": "domain-attach", "domain": "a"}, "refused", "serves no domains")
    refused({"command": "reclaim", "bytes": 1, "timeout_ms": 3600001}, bad)
    refused({"command": "shared-auth", "client": "vm1", "allow": True}, bad, '"uuid"')
    refused({"command": "shared-auth", "client": "vm1", "uuid": "x", "allow": True}, bad, "UUID")
    refused({"command": "shared-auth", "client": "vm1", "uuid": "x", "allow": 1}, bad)


def huge():
    head, tail = b'{"command":"version","id":"', b'"}'
    fits = head + b"x" * (65535 - len(head) - len(tail)) + tail
    assert ask(fits)["ok"] is True
    for size in (65536, 65537, 1 << 20, 16 << 20):
        for end in (b"\n", b""):
            s = connect()
            try:
                s.sendall(head + b"x" * (size - len(head) - len(tail)) + tail + end)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = line(s)
            assert answer["error"]["code"] == "too-large", answer
            assert line(s) is None
            good()


def pipeline():
    s = connect()
    for i in range(200):
        s.sendall(json.dumps({"command": "version", "id": i}).encode() + b"\n")
    for i in range(200):
        assert line(s)["id"] == i
    s.sendall(b'{"command":"flush","all":true,"id":"a"}\n{"command":"list","id":{"b":[null]}}\n')
    assert line(s)["id"] == "a"
    assert line(s)["id"] == {"b": [None]}
    for byte in b'{"command":"list"}\n':
        s.sendall(bytes([byte]))
        time.sleep(0.01)
    assert line(s)["ok"] is True


def half():
    slow = connect()
    start = time.monotonic()
    slow.sendall(b'{"command":')
    drip = connect()
    while time.monotonic() - start < 9:
        drip.sendall(b" ")
        good()
        time.sleep(0.5)
    for s in (slow, drip):
        assert line(s)["error"]["code"] == "timeout"
        assert line(s) is None
    assert 9 < time.monotonic() - start < 15


def deaf():
    s = connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(0.2)
    start = time.monotonic()
    sent = 0
    try:
        while time.monotonic() - start < 20:
            try:
                sent += s.send(b'{"command":"metrics"}\n' * 50)
            except socket.timeout:
                good()
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert 9 < time.monotonic() - start < 15, time.monotonic() - start


def many():
    connections = [connect() for _ in range(64)]
    for s in connections:
        good(s)
    s = connect()
    answer = line(s)
    assert answer["error"]["code"] == "busy", answer
    assert line(s) is None
    for s in connections:
        good(s)
    connections.pop().close()
    for _ in range(100):
        s = connect()
        try:
            if ask({"command": "version"}, s)["ok"]:
                return
        except (BrokenPipeError, ConnectionResetError):
            pass
        time.sleep(0.05)
    raise AssertionError("no room after a connection had ended")


def churn():
    for i in range(3000):
        s = connect()
        try:
            if i % 3 == 0:
                s.sendall(b'{"command":"stat"}\n')
            elif i % 3 == 1:
                s.sendall(b'{"comm')
        except BrokenPipeError:
            pass
        s.close()
    good()


def leave():
    for _ in range(4):
        s = connect()
        s.sendall(b'{"command":"reclaim","bytes":1000000000000,"timeout_ms":1000}\n')
        s.close()
    good()


def jobs():
    busy = [connect() for _ in range(8)]
    for s in busy:
        s.sendall(b'{"command":"reclaim","bytes":1000000000000,"timeout_ms":2000}\n')
    time.sleep(0.3)
    refused({"command": "reclaim", "bytes": 1}, "busy")
    refused({"command": "flush", "all": True}, "busy")
    good()
    for s in busy:
        assert line(s)["result"]["complete"] is False
    assert ask({"command": "flush", "all": True})["ok"] is True


KINDS = (garbage, values, huge, pipeline, half, deaf, many, churn, leave, jobs)
{f.__name__: f for f in KINDS}[sys.argv[2]]()
