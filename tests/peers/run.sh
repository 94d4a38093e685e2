#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the cases named, or all of them, one after the other, each with hosts of its own, and prints
# PASS, FAIL or SKIP for each. Exit status 1 when one failed. The last line is
# "N passed, N failed, N skipped". Run it in the build directory, or name that in peers_build.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../vm/lib/results.sh"

# In namespaces of its own: see lib.sh. What it leaves behind ends with its first process.
private()
{
	unshare --mount --pid --net --fork --mount-proc --kill-child --propagation private "$@"
}

run_case() # name
{
	if [ "$(id -u)" != 0 ] || ! private true 2> /dev/null; then
		echo 'namespaces for mounts, processes and networks cannot be made (root is needed)'
		return 77
	fi
	for tool in ip nft certtool jq; do
		command -v $tool > /dev/null && continue
		echo "needs $tool; ./quickstart packages prints all that is needed"
		return 77
	done
	private timeout "${CASE_LIMIT:-180}" "$here/cases/$1.sh"
}

trap 'exit 130' INT TERM
export peers_build=${peers_build:-$PWD}

[ $# -gt 0 ] || set -- overflow killed cut back strangers lies full drained save
for name; do
	start=$SECONDS
	output=$(run_case "$name" 2>&1)
	status=$?
	[ $status != 130 ] || exit 130
	result "peers $name" $status $((SECONDS - start)) <<< "$output"
done
finish
