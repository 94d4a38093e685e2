#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The evidence program, briefly: the same bursts on the same host memory, without and with tmem. Its
# figures are there and sane: what the guests say they wrote is what the host's kernel says that QEMU
# wrote, and tmem writes less to the disks. (cases 32)
. "$(dirname "$0")/../lib/case.sh"
need small

json=$vm_work/consolidate.json
"$vm_src/consolidate" --workload hog --variants none,tmem --runs 1 --memory 96 --scale 25 \
	--kernel small --max-busy 1000 --json "$json" > "$vm_work/consolidate.log" 2>&1 ||
	fail 'consolidate failed'
sed -n '/^hog run/p' "$vm_work/consolidate.log"

# holds TEXT CONDITION: of the JSON, where $none and $tmem are the runs' records
holds()
{
	jq -e '(.runs[] | select(.variant == "none")) as $none |
		(.runs[] | select(.variant == "tmem")) as $tmem | '"$2" "$json" > /dev/null ||
		fail "$1: $(jq -c '.runs | map({variant, result, start, memory, figures})' "$json")"
}

holds 'not both runs were measured' '[$none.result, $tmem.result] == ["ok", "ok"]'
holds 'host memory is not the budget' '[$none, $tmem | .memory.total_mb] == [192, 192]'
holds 'the guests under tmem are not smaller' \
	'$tmem.memory.guest_mb < $none.memory.guest_mb and $tmem.memory.host_mb > 0'
holds 'the state at start was wrong' '[$none, $tmem | .guests[].start |
	.held == 0 and .SwapTotal > 0 and .SwapFree == .SwapTotal] | all'
holds 'without tmem nothing was swapped' \
	'$none.figures | .swap_sectors_written > 50000 and .pswpout * 8 >= .swap_sectors_written * 0.9'
holds "the host's view of the disk is another than the guests'" \
	'$none.figures | .qemu_sectors_written - .swap_sectors_written | fabs < 2000'
holds 'tmem does not write less' \
	'$tmem.figures.sectors_written < $none.figures.sectors_written * 0.9'
holds 'tmem held nothing' \
	'$tmem.figures | .peak_logical_bytes > .peak_physical_bytes and .peak_physical_bytes > 16777216'
holds "the service's memory was not seen" '$tmem.figures.peak_service_bytes > 16777216'
holds 'no CPU was counted' '[$none, $tmem | .figures.guests_cpu_seconds > 1] + [
	$tmem.figures.service_cpu_seconds > 0] | all'
grep -q '^hog: least disk I/O: tmem' "$vm_work/consolidate.log" || fail 'the table does not say who wins'

# Wrong usage is a sentence and status 2.
"$vm_src/consolidate" --variants no-such > "$vm_work/usage.log" 2>&1
[ $? = 2 ] && grep -q "there is no variant 'no-such'" "$vm_work/usage.log" ||
	fail 'an unknown variant is not refused'
