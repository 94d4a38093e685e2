# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034,SC2154
#
# As vhost-blk, but the guest's memory is not shared: the disk is reached by NBD, through an nbdkit
# for each guest. What those processes need, 5 to 15 MB each, is taken from the host's share, as regions
# are for tmem, and counted with the service: memory and CPU.
. "$vm_src/variants/vhost-blk.sh"
tmem_region_mb=14

variant_help() { echo 'as vhost-blk, but by NBD: memory of the guests is not shared'; }

variant_can()
{
	host_nbd_can || return 1
	variant_memory
	[ $tmem_pool_mb -ge 16 ] && return
	echo "the host's share of $host_mb MB is too small for a pool and $guests servers: more --pool"
	return 1
}

variant_host_start()
{
	local name disk_mb=$((tmem_pool_mb * 4096 / 4160 / guests))

	host_setup ${tmem_pool_mb}M || return 1
	for name; do
		host_disk "$name" size=${disk_mb}M || return 1
	done
	tmemd_start || return 1
	for name; do
		host_nbd "$name" || return 1
	done
}

variant_qemu() { guest_nbd "$vm_work/$1.nbd,serial=$1,addr=0x10"; }

service_kb()
{
	local pid kb

	kb=$(tmemd_kb)
	for pid in $(host_nbd_pids); do
		kb=$((kb + $(awk '/^Rss(Anon|Shmem):/ { n += $2 } END { print n }' "/proc/$pid/status")))
	done
	echo $kb
}

variant_ticks()
{
	local pid sum

	sum=$(ticks_of "$host_pid")
	for pid in $(host_nbd_pids); do sum=$((sum + $(ticks_of "$pid"))); done
	echo $sum
}
