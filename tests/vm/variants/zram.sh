# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# As distributions set it up: a zram disk of the size of memory, lz4, before the swap disk.
variant_help() { echo 'zram in each guest, as large as its memory, before the swap disk'; }

variant_can() { needs_evidence_kernel; }

variant_script()
{
	cat <<-'EOS'
		# The disk that is switched on first has the higher priority.
		variant_start() {
			echo lz4 > /sys/block/zram0/comp_algorithm &&
				echo "$(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo)K" \
					> /sys/block/zram0/disksize &&
				mkswap /dev/zram0 > /dev/null && swapon /dev/zram0 && swap_on vda
		}
		# The swap header is a page of the disk.
		variant_held() {
			read -r original rest < /sys/block/zram0/mm_stat
			echo $((original / 4096 - 1))
		}
		variant_sample() {
			read -r original compressed used rest < /sys/block/zram0/mm_stat
			echo "$original,$used"
		}
	EOS
}
