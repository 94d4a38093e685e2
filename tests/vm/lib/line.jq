# SPDX-License-Identifier: GPL-2.0-or-later
# One line for a run, as it ends.
"\(.workload)\(if .workload == "make" then " -j\(.jobs)" else "" end) run \(.run) \(.variant): " +
(if .result != "ok" then "FAILED: \(.why)" else
	"\(.figures.sectors_read) sectors read, \(.figures.sectors_written) written, " +
	"\(.figures.seconds) s, CPU \(.figures.guests_cpu_seconds) + \(.figures.service_cpu_seconds) s, " +
	"pswpin \(.figures.pswpin), pswpout \(.figures.pswpout), majflt \(.figures.majflt)"
end) +
"; at start: load \(.start.loadavg), others \(.start.others_busy_percent) % of a CPU, " +
"swap and pool unused\(if .note == "" then "" else "; " + .note end); memory \(.memory.guest_held_mb) MB x \(.guests | length)" +
" + \(.memory.host_mb) = \(.memory.total_mb) MB"
