# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads Prometheus text on standard input and fails on anything that the format does not allow.

For each metric: HELP, TYPE, then its samples together; names, labels and values well-formed;
counters end in _total; no sample twice.
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? (\d+)")


def check(text):
    """The number of metrics and samples; ValueError says what is wrong in which line."""
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    helped, typed, seen, current = set(), {}, set(), None
    for number, line in enumerate(text.splitlines(), 1):
        where = f"line {number}: {line!r}: "
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            if not re.fullmatch(NAME, name) or name in helped or len(line.split(" ", 3)) < 4:
                raise ValueError(where + "bad or repeated HELP")
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != current or name in typed or kind not in ("counter", "gauge"):
                raise ValueError(where + "bad, repeated or misplaced TYPE")
            if (kind == "counter") != name.endswith("_total"):
                raise ValueError(where + "_total belongs to counters, and to them alone")
            typed[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            if not match:
                raise ValueError(where + "no sample")
            if match[1] != current or current not in typed:
                raise ValueError(where + "not behind its own HELP and TYPE")
            if match[1] + (match[2] or "") in seen:
                raise ValueError(where + "twice")
            seen.add(match[1] + (match[2] or ""))
    return len(typed), len(seen)


metrics, samples = check(sys.stdin.read())
print(f"{metrics} metrics, {samples} samples")
if metrics < 40:
    sys.exit("fewer metrics than the counter lists have")
