# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034,SC2154
#
# The pool and the guests' shared regions are taken from the budget, the guests have the rest. The
# arena has a tmpfs of its own. tmemd's memory is watched: it must keep to that share.
tmem_region_mb=1

variant_help() { echo 'tmem: smaller guests, one pool of the host for all of them'; }

variant_memory()
{
	guest_mb=$(((budget_mb - (pool_mb > 0 ? pool_mb : budget_mb * 3 / 8)) / guests))
	host_mb=$((budget_mb - guests * guest_mb))
	tmem_pool_mb=$((host_mb - guests * tmem_region_mb))
}

variant_can()
{
	variant_memory
	[ $tmem_pool_mb -ge 16 ] && return
	echo "the host's share of $host_mb MB is too small for a pool and $guests regions: more --pool"
	return 1
}

variant_host_start()
{
	local name

	host_setup ${tmem_pool_mb}M || return 1
	for name; do
		host_client "$name" region=${tmem_region_mb}M rings="$cpus" || return 1
	done
	tmemd_start
}

variant_qemu() { guest_tmem "$vm_work/$1.sock" "$cpus"; }

variant_script()
{
	cat <<-'EOS'
		variant_start() { tmem_load && swap_on vda; }
		variant_held() { held; }
	EOS
}

variant_held()
{
	host_tmemctl stat --json | jq '[.clients[] | .pages_persistent + .pages_ephemeral] | add'
}

variant_sample()
{
	local bytes kb

	bytes=$(host_tmemctl stat --json |
		jq -r '([.clients[].logical_bytes] | add | tostring) + " " + (.service.pool_bytes | tostring)')
	kb=$(awk '/^Rss(Anon|Shmem):/ { n += $2 } END { print n }' "/proc/$host_pid/status")
	echo "$bytes $((kb * 1024))"
}

variant_ticks() { ticks_of "$host_pid"; }

variant_host_stop() { host_cleanup; }
