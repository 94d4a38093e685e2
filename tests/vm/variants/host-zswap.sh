# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034,SC2154
#
# Overcommitment by the host: the guests see twice the memory that they have. Their QEMUs are in a
# memory cgroup; what does not fit is swapped by the host's kernel, through its zswap.
#
# Equal memory: what the group has, and zswap's pool, together are the budget and QEMU's own memory
# (all anonymous memory but the guest's, resident or swapped, and page tables), which all other
# variants have on top of the budget too. cgroup v2 charges zswap's pool to the group; v1 does not,
# so the limit goes down by the pool's size, several times a second.
#
# The host is left as it was found: zswap's parameters, swap, page merging, the group.
hz_ksm=no
hz_factor=2
hz_others_most_kb=16384 # of the host's own memory in that swap when a run begins

variant_help() { echo "guests that see $hz_factor times their memory, swapped by the host through its zswap"; }

hz_parameters=/sys/module/zswap/parameters
hz_state=$vm_work/host-zswap
hz_swap=$vm_work/host.swap

variant_can()
{
	if [ "$(id -u)" != 0 ]; then
		echo 'swap and cgroups of the host need root'
	elif [ -z "$(hz_root)" ]; then
		echo 'no memory cgroup can be made here'
	elif [ ! -w $hz_parameters/enabled ]; then
		echo "the host's kernel has no zswap"
	elif [ "$(wc -l < /proc/swaps)" -gt 1 ]; then
		echo 'the host has swap of its own, which would be measured too'
	elif [ $hz_ksm = yes ] && [ ! -w /sys/kernel/mm/ksm/run ]; then
		echo "the host's kernel does not merge pages"
	else
		return 0
	fi
	return 1
}

variant_memory() { guest_mb=$((memory_mb * hz_factor)) guest_mb_held=$memory_mb host_mb=0 host_swap_kb=$hz_others_most_kb; }

# The directory below which groups with a memory limit can be made.
hz_root()
{
	local v1=/sys/fs/cgroup/memory v2=/sys/fs/cgroup

	if [ -w $v1/memory.limit_in_bytes ]; then
		echo $v1
	elif grep -qw memory $v2/cgroup.subtree_control 2> /dev/null && [ -w $v2/cgroup.procs ]; then
		echo $v2
	fi
}

hz_version() { if [ -f "$(hz_root)/memory.limit_in_bytes" ]; then echo 1; else echo 2; fi; }

# The group that this shell is in.
hz_own()
{
	if [ "$(hz_version)" = 1 ]; then
		echo "$(hz_root)$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)"
	else
		echo "$(hz_root)$(sed -n 's/^0:://p' /proc/self/cgroup)"
	fi
}

# Writes a parameter and remembers what it was.
hz_set() # file value
{
	printf '%s %s\n' "$1" "$(sed 's/.*\[\(.*\)\].*/\1/' "$1")" >> "$hz_state"
	echo "$2" > "$1"
}

variant_host_start()
{
	hz_group=$(hz_root)/tmemd-consolidate-$$
	hz_home=$(hz_own)
	: > "$hz_state"
	mkdir "$hz_group" || return 1
	hz_limit=$hz_group/memory.max
	[ "$(hz_version)" != 1 ] || hz_limit=$hz_group/memory.limit_in_bytes
	# Swap of the host backs all guests together.
	[ -f "$hz_swap" ] || make_disk "$hz_swap" $((swap_mb * guests)) || return 1
	chmod 600 "$hz_swap"
	mkswap "$hz_swap" > /dev/null && swapon "$hz_swap" || return 1
	hz_set $hz_parameters/compressor lz4 2> /dev/null # not every kernel has it
	hz_set $hz_parameters/enabled Y || return 1
	hz_others_kb=$(hz_zswap_kb)
	[ $hz_ksm = no ] && return 0
	hz_set /sys/kernel/mm/ksm/pages_to_scan 1000 && hz_set /sys/kernel/mm/ksm/run 1
}

# Memory counts where it is first touched: QEMU begins inside the group.
variant_boot()
{
	local result=0

	echo $BASHPID > "$hz_group/cgroup.procs" || return 1
	guest_start "$@" || result=1
	echo $BASHPID > "$hz_home/cgroup.procs" || return 1
	return $result
}

# Kilobytes of QEMU's own: all but the one mapping that is the guest's memory. Pages of its program
# are shared, and charged to whoever read them first: not to this group.
hz_qemu_kb()
{
	awk -v guest_kb=$((guest_mb * 1024)) '
		/^[0-9a-f]+-[0-9a-f]+ / { mine = 1 }
		$1 == "Size:" && $2 == guest_kb { mine = 0 }
		($1 == "Anonymous:" || $1 == "Swap:") && mine { sum += $2 }
		END { print sum + 0 }' "/proc/$1/smaps"
}

hz_zswap_kb()
{
	local key kb

	while read -r key kb _; do
		[ "$key" != Zswap: ] || printf '%s\n' "$kb"
	done < /proc/meminfo
}

# Into hz_own_kb. Costs milliseconds a guest.
hz_measure_own()
{
	local name kb

	hz_own_kb=0
	for name; do
		kb=$(hz_qemu_kb "$(guest_ps "$name")" 2> /dev/null) || return 1
		hz_own_kb=$((hz_own_kb + kb))
	done
}

# Shell built-ins only: what follows the pool must not be a load of its own.
hz_set_limit()
{
	local kb=$((budget_mb * 1024 + hz_own_kb)) key pool kmem

	if [ "${hz_limit##*/}" = memory.limit_in_bytes ]; then
		while read -r key pool _; do
			[ "$key" != Zswap: ] || break
		done < /proc/meminfo
		read -r kmem < "$hz_group/memory.kmem.usage_in_bytes"
		kb=$((kb - pool + hz_others_kb + kmem / 1024))
	fi
	echo ${kb}K 2> /dev/null > "$hz_limit"
}

# The limit follows the pool four times a second, and QEMU's own memory every other second.
hz_keep()
{
	local turn=0 nothing

	exec {nothing}<> <(:)
	while hz_set_limit; do
		read -r -t 0.25 -u "$nothing"
		[ $((++turn % 8)) -ne 0 ] || hz_measure_own "$@" || break
	done
}

variant_ready()
{
	hz_measure_own "$@" && hz_set_limit || return 1
	hz_keep "$@" &
	hz_keeper=$!
}

# Of the group; a host may page out cold memory of its own as soon as there is swap (DAMON does).
variant_held()
{
	if [ "$(hz_version)" = 1 ]; then
		awk '$1 == "swap" { print $2 / 4096 }' "$hz_group/memory.stat"
	else
		awk '{ print $1 / 4096 }' "$hz_group/memory.swap.current"
	fi
}

variant_note() { echo "$(cat $hz_parameters/compressor), cgroup v$(hz_version)"; }

variant_sample()
{
	awk '$1 == "Zswap:" { p = $2 } $1 == "Zswapped:" { l = $2 }
		END { print l * 1024, p * 1024, 0 }' /proc/meminfo
}

# The kernel's thread that merges pages; swapping itself is QEMU's own time.
variant_ticks()
{
	local pid

	pid=$(pgrep -x ksmd)
	if [ $hz_ksm = yes ] && [ -n "$pid" ]; then ticks_of "$pid"; else echo 0; fi
}

variant_disk() { echo $(($(host_vmstat pswpin) * 8)) $(($(host_vmstat pswpout) * 8)); }

variant_host_stop()
{
	local file value

	[ -z "${hz_keeper:-}" ] || kill "$hz_keeper" 2> /dev/null
	hz_keeper=
	[ -f "$hz_state" ] || return 0
	guests_kill
	! grep -q "^$hz_swap " /proc/swaps || swapoff "$hz_swap"
	tac "$hz_state" | while read -r file value; do echo "$value" > "$file"; done
	rm "$hz_state"
	rmdir "$hz_group"
}
