# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# How the runners of cases tell what became of them (tests/vm, tests/libvirt, tests/xen).
#
#   result NAME STATUS SECONDS  one case: 0 passed, 77 skipped, else failed; reads what it said
#   finish                      "N passed, N failed, N skipped", and exit: 1 when one failed

passed=0 failed=0 skipped=0

result()
{
	case $2 in
	0)
		passed=$((passed + 1))
		printf 'PASS: %s (%d s)\n' "$1" "$3"
		;;
	77)
		skipped=$((skipped + 1))
		printf 'SKIP: %s: ' "$1"
		;;
	*)
		failed=$((failed + 1))
		printf 'FAIL: %s (%d s)\n' "$1" "$3"
		;;
	esac
	cat
}

finish()
{
	printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
	[ $failed -eq 0 ]
	exit
}
