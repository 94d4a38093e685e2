#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Command-line tests, the files named, in the build directory. 77: they cannot run here.
srcdir=${srcdir:-.}
export srcdir

skip()
{
	echo "skipped: $1"
	exit 77
}

command -v bats >/dev/null || skip "bats is not installed"
command -v python3 >/dev/null || skip "python3 is not installed"
[ "$(stat -f -c %T /dev/shm)" = tmpfs ] || skip "/dev/shm is not a tmpfs"
[ -w /dev/shm ] || skip "/dev/shm is not writable"

# What is called python3 may be a script that first looks for one; it is called hundreds of times.
PYTHON=$(python3 -c 'import sys; print(sys.executable)')
export PYTHON

exec bats --tap "$@"
