#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Boots Xen in QEMU and runs the cases named, or all of them, in its dom0; prints PASS, FAIL or SKIP
# for each. Exit status 1 when one failed. The last line is "N passed, N failed, N skipped".
# Run it in the build directory, or name that in vm_build.
set -u
here=$(cd "$(dirname "$0")" && pwd)
vm_src=$here/../vm
vm_build=${vm_build:-$PWD}
vm_work=$(mktemp -d "${TMPDIR:-/tmp}/tmemd-xen.XXXXXX") || exit 1
. "$vm_src/lib/kernels.sh"
. "$vm_src/lib/guests.sh"
. "$vm_src/lib/host.sh"
. "$vm_src/lib/inner.sh"
. "$vm_src/lib/results.sh"
. "$here/lib/fetch.sh"
. "$here/lib/boot.sh"
case_limit=${CASE_LIMIT:-300} # seconds, for one case
seed=${SEED:-$RANDOM}
kills=${KILLS:-3}
[ -z "${TMEMD_VM_LONG:-}" ] || kills=${KILLS:-50} case_limit=${CASE_LIMIT:-3600}

run_end()
{
	local status=$?

	trap - EXIT INT TERM
	xen_kill
	if [ -n "${TMEMD_VM_KEEP:-}" ]; then
		vm_say "kept: $vm_work"
	else
		rm -rf "$vm_work"
	fi
	exit $status
}
trap run_end EXIT
trap 'exit 130' INT TERM

skip_all() # reason, cases
{
	local name

	for name in "${@:2}"; do
		result "$name" 77 0 <<< "$1"
	done
}

why_not() # prints what is missing
{
	local tool

	for tool in qemu-system-x86_64 busybox cpio jq "$kernel_cc" modprobe setpriv; do
		command -v "$tool" > /dev/null || { echo "$tool is not installed"; return; }
	done
	[ -x "$TMEMD" ] || { echo "no tmemd in $vm_build: build first, or set vm_build"; return; }
	xen_fetch || echo 'the packages of Xen and the kernels could not be fetched'
}

# Whether this tmemd was built with the Xen front.
has_front()
{
	printf '[client guest]\nfront = xen\ndomain = guest\n' > "$vm_work/front.conf"
	"$TMEMD" --config "$vm_work/front.conf" --check-config > /dev/null 2>&1
}

build_images()
{
	local source

	vm_programs || return 1
	for source in "$here"/programs/*.c; do
		"${CC:-gcc}" -std=gnu11 -O2 -Wall -Wextra -static -I "$here/../../proto" -o \
			"$vm_work/bin/$(basename "$source" .c)" "$source" || return 1
	done
	kernel_elf dom0 > /dev/null && domu_images
}

# Takes the complete lines that dom0 has said since the last call. Sets: current (the case that
# runs), left (cases without a result).
seen=0 current='' left=()
listen()
{
	local lines line word name status seconds

	lines=$(wc -l < "$vm_work/said")
	[ "$lines" -gt $seen ] || return 1
	while IFS= read -r line; do
		line=${line%$'\r'}
		read -r word name status seconds <<< "$line"
		case $word in
		UP) printf 'Xen and dom0 are up after %d s\n' $((SECONDS - booted)) ;;
		CASE)
			current=$name
			: > "$vm_work/case"
			;;
		'|') printf '%s\n' "${line#| }" >> "$vm_work/case" ;;
		END)
			result "$name" "$status" "$seconds" < "$vm_work/case"
			current=
			left=("${left[@]:1}")
			;;
		esac
	done < <(sed -n "$((seen + 1)),${lines}p" "$vm_work/said")
	seen=$lines
}

# One boot with the cases in left. When it ends without having run them all, the case that it was at
# has failed.
boot()
{
	local heard=$SECONDS

	seen=0 current='' booted=$SECONDS
	xen_boot
	while xen_running; do
		sleep 0.3
		if listen; then
			heard=$SECONDS
		elif [ $((SECONDS - heard)) -gt $((case_limit + 90)) ]; then
			vm_say 'nothing heard of dom0 for too long'
			break
		fi
	done
	xen_kill
	listen
	[ ${#left[@]} = 0 ] && return
	{
		echo "Xen or dom0 came to an end or a stand; the end of its console:"
		tail -n 40 "$vm_work/console.log"
	} | result "${left[0]}" 1 $((SECONDS - booted))
	left=("${left[@]:1}")
}

[ $# -gt 0 ] || set -- smoke attach frontswap selftest destroy restart save hostile liar xl memory
for name; do
	[ -f "$here/cases/$name.sh" ] || { vm_say "no case '$name'"; exit 2; }
done
reason=$(why_not)
[ -z "$reason" ] || { skip_all "$reason" "$@"; finish; }
for name; do
	if [ "$name" = smoke ] || has_front; then
		left+=("$name")
	else
		skip_all 'tmemd is built without the Xen front (it needs libxen-dev)' "$name"
	fi
done
if [ ${#left[@]} -gt 0 ]; then
	build_images || { vm_say 'no images'; failed=${#left[@]}; finish; }
	note_seed="SEED=$seed KILLS=$kills"
	printf '%s, images after %d s\n' "$note_seed" $SECONDS
fi
while [ ${#left[@]} -gt 0 ]; do
	dom0_image "${left[@]}" || { vm_say 'no image of dom0'; failed=$((failed + ${#left[@]})); finish; }
	boot
done
finish
