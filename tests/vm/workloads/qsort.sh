# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The workload `qsort` of tests/vm/consolidate: several processes at once, each sorting an array;
# together they need far more memory than there is. What qsbench, the measure of many papers on
# swapping, does; the program is our own and checks what it sorted.

workload_help() { echo 'four processes sort arrays at once, together 128 % of memory'; }

workload_build() { :; }

workload_files() { :; }

workload_drive() { :; }

workload_script()
{
	echo "qsort_mb=$((WL_MEMORY_MB * 32 * WL_SCALE / 10000))"
	cat <<-'EOS'
		workload_setup() { :; }

		workload_run() {
			local i pids='' status=0
			for i in 1 2 3 4; do
				sorter --mb $qsort_mb --seed $((WL_GUEST_NR * 4 + i)) > /tmp/sorter.$i &
				pids="$pids $!"
			done
			for i in $pids; do wait $i || status=1; done
			cat /tmp/sorter.*
			say sorted_mb=$((4 * qsort_mb))
			return $status
		}
	EOS
}
