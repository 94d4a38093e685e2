# SPDX-License-Identifier: GPL-2.0-or-later
# One run of tests/vm/consolidate from what its guests printed and what the host's counters say
# before and after. Input: an array of guests. docs/evidence.md describes the result.
def sum_of($key): map(.figures[$key] // 0) | add;
def delta($i): ($after | split(" ")[$i] | tonumber? // 0) - ($before | split(" ")[$i] | tonumber? // 0);

. as $guest_list |
{
	workload: $workload, jobs: $jobs, variant: $variant, run: $run, result: $result, why: $why, note: $note,
	start: $start, memory: $memory,
	figures: (
		if $result == "ok" then {
			seconds: (map(.figures.seconds // 0) | max),
			sectors_read: (sum_of("swap_sectors_read") + sum_of("drive_sectors_read") + delta(4)),
			sectors_written: (sum_of("swap_sectors_written") + sum_of("drive_sectors_written") + delta(5)),
			swap_sectors_read: sum_of("swap_sectors_read"),
			swap_sectors_written: sum_of("swap_sectors_written"),
			drive_sectors_read: sum_of("drive_sectors_read"),
			drive_sectors_written: sum_of("drive_sectors_written"),
			host_swap_sectors_read: delta(4),
			host_swap_sectors_written: delta(5),
			qemu_sectors_read: (delta(0) / 512 | floor),
			qemu_sectors_written: (delta(1) / 512 | floor),
			pswpin: sum_of("pswpin"),
			pswpout: sum_of("pswpout"),
			majflt: sum_of("pgmajfault"),
			guests_cpu_seconds: (delta(2) / $hz),
			service_cpu_seconds: (delta(3) / $hz)
		} + {peak_logical_bytes: $peak.logical_bytes, peak_physical_bytes: $peak.physical_bytes,
		     peak_service_bytes: $peak.service_bytes}
		| .sectors = .sectors_read + .sectors_written
		| .cpu_seconds = .guests_cpu_seconds + .service_cpu_seconds
		else null end),
	guests: $guest_list
}
