#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Runs the cases named, or all of them, one after the other, and prints PASS, FAIL or SKIP for each.
# Exit status 1 when one failed. The last line is "N passed, N failed, N skipped".
# Run it in the build directory, or name that in vm_build.
here=$(cd "$(dirname "$0")" && pwd)
passed=0 failed=0 skipped=0

[ $# -gt 0 ] || set -- disk nbd kernels filesystem frontswap limits restart late reboot lost hibernate cleancache \
	hostmem hostgroup consolidate doctor debug ${TMEMD_VM_LONG:+sizing}
for name; do
	start=$SECONDS
	output=$("$here/cases/$name.sh" 2>&1)
	case $? in
	0)
		passed=$((passed + 1))
		printf 'PASS: %s (%d s)\n' "$name" $((SECONDS - start))
		;;
	77)
		skipped=$((skipped + 1))
		printf 'SKIP: %s:' "$name"
		;;
	130) exit 130 ;;
	*)
		failed=$((failed + 1))
		printf 'FAIL: %s (%d s)\n' "$name" $((SECONDS - start))
		;;
	esac
	printf '%s\n' "$output"
done
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ]
