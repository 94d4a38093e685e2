# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash disable=SC2034,SC2154
#
# The guest runs nothing of ours: its first swap is a disk of tmemd (vhost-user-blk), the swap disk
# comes after. As for tmem, pool and guests together have the budget. The disks are as large as the
# pool could hold if nothing compressed: larger ones would need overcommit, which has nothing below.
. "$vm_src/variants/tmem.sh"
tmem_region_mb=0

variant_help() { echo 'smaller guests, one pool for all of them, as a vhost-user-blk disk before the swap disk'; }

variant_host_start()
{
	local name disk_mb=$((tmem_pool_mb * 4096 / 4160 / guests))

	host_setup ${tmem_pool_mb}M || return 1
	for name; do
		host_disk "$name" size=${disk_mb}M queues="$cpus" || return 1
	done
	tmemd_start
}

# Behind the drives, which are vda and vdb in the guest.
variant_qemu() { guest_vhost "$guest_mb" "$vm_work/$1.sock,num-queues=$cpus,addr=0x10"; }

variant_script()
{
	cat <<-'EOS'
		variant_start() {
			for disk in /sys/block/vd*; do
				case $(cat $disk/serial) in vm*) break ;; esac
			done
			tmem_disk=${disk##*/}
			echo 0 > $disk/queue/rotational
			mkswap /dev/$tmem_disk > /dev/null && swapon -dpages /dev/$tmem_disk && swap_on vda
		}
		variant_held() { echo 0; }
	EOS
}

# Each disk has a swap header from the start.
variant_held()
{
	local held

	held=$(host_tmemctl stat --json | jq '[.clients[].pages_persistent] | add')
	echo $((held > guests ? held : 0))
}

# Of tmemd in kB. It maps the memory of its front ends, which is theirs and counted there.
tmemd_kb()
{
	awk '/^[0-9a-f]+-[0-9a-f]+ / { arena = $6 ~ "^/dev/shm/"; other = $6 ~ "^/memfd:" }
		/^Rss:/ && arena { n += $2 }
		/^Anonymous:/ && !arena && !other { n += $2 }
		END { print n + 0 }' "/proc/$host_pid/smaps"
}

service_kb() { tmemd_kb; }

variant_sample()
{
	host_tmemctl stat --json | jq -r --argjson kb "$(service_kb)" \
		'[([.clients[].logical_bytes] | add), .service.pool_bytes, $kb * 1024] | join(" ")'
}
