# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The kernel's defaults but for lz4 and zsmalloc, which are what tmem is like.
zswap_percent=20

variant_help() { echo "zswap in each guest, at most $zswap_percent % of its memory, before the swap disk"; }

variant_can() { needs_evidence_kernel; }

variant_script()
{
	printf 'zswap_percent=%s\n' "$zswap_percent"
	cat <<-'EOS'
		variant_start() {
			cd /sys/module/zswap/parameters || return 1
			echo lz4 > compressor && echo zsmalloc > zpool &&
				echo "$zswap_percent" > max_pool_percent && echo Y > enabled || return 1
			cd /
			swap_on vda
		}
		variant_held() { cat /sys/kernel/debug/zswap/stored_pages; }
		variant_sample() {
			read -r pages < /sys/kernel/debug/zswap/stored_pages
			read -r bytes < /sys/kernel/debug/zswap/pool_total_size
			echo "$((pages * 4096)),$bytes"
		}
	EOS
}
