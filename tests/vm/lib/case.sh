# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What each script in cases/ begins with: sources the library, makes the directory of the run,
# cleans up at the end. A case ends with 0 passed, 1 failed (after fail) or 77 skipped (skip).
#
#   fail SENTENCE       the case has failed
#   skip SENTENCE       it cannot run here, and why
#   check TEXT COMMAND  fails with TEXT when the command does
#   need FLAVOUR        fetch and build what this kernel needs, or skip
#   need_tools PROGRAM...  skip when one is not installed
#   note TEXT           a figure for the log, shown under the result
#   swaps_to_disk SEED  print the script of a guest whose first disk is its swap: a process of 110 MB
#                       until the guest is told something, then told again to do without the disk
#
# Environment: vm_build (build directory; default: two levels above cases/ when it has tmemd, else
# the current directory), TMEMD_VM_KEEP (keep the run's directory).

set -u
vm_src=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
vm_build=${vm_build:-$PWD}
vm_work=$(mktemp -d "${TMPDIR:-/tmp}/tmemd-vm.XXXXXX") || exit 1
. "$vm_src/lib/kernels.sh"
. "$vm_src/lib/guests.sh"
. "$vm_src/lib/host.sh"

case_end()
{
	local status=$?

	trap - EXIT INT TERM
	guests_kill
	host_cleanup
	if [ -n "${TMEMD_VM_KEEP:-}" ]; then
		vm_say "kept: $vm_work"
	else
		rm -rf "$vm_work"
	fi
	exit $status
}
trap case_end EXIT
trap 'exit 130' INT TERM

note() { printf '  %s\n' "$*"; }

fail()
{
	printf '%s\n' "$*" >&2
	for log in "$vm_work"/*.log; do
		[ -f "$log" ] || continue
		printf -- '---- end of %s\n' "$(basename "$log")"
		tail -n 40 "$log"
	done >&2
	exit 1
}

skip()
{
	printf '%s\n' "$*"
	exit 77
}

check()
{
	local text=$1

	shift
	"$@" || fail "$text"
}

need_tools()
{
	local tool

	for tool; do
		command -v "$tool" > /dev/null || skip "$tool is not installed"
	done
}

need()
{
	need_tools qemu-system-x86_64 busybox cpio jq modprobe xz
	[ -x "$TMEMD" ] || skip "no tmemd in $vm_build: build first, or set vm_build"
	if suite_of "$1" > /dev/null; then
		kernel_build "$1" || skip "the kernel of $1 could not be fetched"
		return
	fi
	need_tools "$kernel_cc"
	kernels_fetch || skip 'the Debian 11 kernel packages could not be fetched'
	kernel_build "$1" || fail "the $1 kernel could not be built"
}

swaps_to_disk()
{
	cat <<-EOS
		echo 0 > /sys/block/vda/queue/rotational
		mkswap /dev/vda > /dev/null && swapon -dpages /dev/vda || exit 1
		pagehog --mb 110 --passes 1 --seed $1 --until /tmp/enough &
		hog=\$!
		wait_for_host
		touch /tmp/enough
		wait \$hog || exit 1
		say used=\$(awk 'NR == 2 { print \$4 / 4 }' /proc/swaps)
		say hog=over
		wait_for_host
		swapoff /dev/vda || exit 1
		say disk_errors=\$(dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error')
	EOS
}
