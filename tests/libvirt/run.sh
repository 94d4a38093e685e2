#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the cases named, or all of them, one after the other, each with a libvirt of its own, and
# prints PASS, FAIL or SKIP for each. Exit status 1 when one failed. The last line is
# "N passed, N failed, N skipped". Run it in the build directory, or name that in vm_build.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../vm/lib/results.sh"

# In namespaces of its own: see lib.sh. What it leaves behind ends with its first process.
private()
{
	TMEMD_LIBVIRT_PRIVATE=yes unshare --mount --pid --fork --mount-proc --kill-child \
		--propagation private "$@"
}

run_case() # name
{
	if [ "$(id -u)" != 0 ] || ! private true 2> /dev/null; then
		echo 'namespaces for mounts and processes cannot be made (root is needed)'
		return 77
	fi
	private "$here/cases/$1.sh"
}

TMEMD_LIBVIRT_CACHE=$(mktemp -d) || exit 1
export TMEMD_LIBVIRT_CACHE
trap 'rm -rf "$TMEMD_LIBVIRT_CACHE"' EXIT
trap 'exit 130' INT TERM

[ $# -gt 0 ] || set -- cold hot save hook ring
for name; do
	start=$SECONDS
	output=$(run_case "$name" 2>&1)
	status=$?
	[ $status != 130 ] || exit 130
	result "libvirt $name" $status $((SECONDS - start)) <<< "$output"
done
finish
