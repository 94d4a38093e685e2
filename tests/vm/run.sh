#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the cases named, or all of them, one after the other, and prints PASS, FAIL or SKIP for each.
# Exit status 1 when one failed. The last line is "N passed, N failed, N skipped".
# Run it in the build directory, or name that in vm_build.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib/results.sh"

[ $# -gt 0 ] || set -- disk nbd kernels filesystem frontswap selftest limits restart late reboot migrate lost hibernate cleancache \
	hostmem hostgroup consolidate doctor debug ${TMEMD_VM_LONG:+sizing}
for name; do
	start=$SECONDS
	output=$("$here/cases/$name.sh" 2>&1)
	status=$?
	[ $status != 130 ] || exit 130
	result "$name" $status $((SECONDS - start)) <<< "$output"
done
finish
