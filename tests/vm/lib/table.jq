# SPDX-License-Identifier: GPL-2.0-or-later
# The table at the end of tests/vm/consolidate, from its JSON.
def pad($n): tostring | (" " * ([$n - length, 0] | max)) + .;
def left($n): tostring | . + (" " * ([$n - length, 0] | max));
def round1: . * 10 | round / 10;
def mb: . / 1048576 | round1;
def cell($f; $n): if .figures == null then "-" | pad($n) else
	.figures[$f] | "\(.median | round1) (\(.min | round1)..\(.max | round1))" | pad($n) end;
def mbcell($f; $n): if .figures == null then "-" | pad($n) else .figures[$f].median | mb | pad($n) end;
def words: {sectors: "least disk I/O", seconds: "shortest", cpu_seconds: "least CPU"}[.];
def title: "\(.workload)\(if .workload == "make" then " -j\(.jobs)" else "" end)";

. as $all |
"\nmedian (min..max) of each variant's runs; sectors of 512 bytes on swap, backing and host disks",
(.summary | group_by([.workload, .jobs])[] |
	"\n\(.[0] | title), \($all.settings.guests) guests on \($all.settings.budget_mb) MB",
	"\("variant" | left(16))\("runs" | pad(5))\("guest MB" | pad(9))\("host MB" | pad(8))" +
	"\("sectors read" | pad(28))\("sectors written" | pad(28))\("seconds" | pad(20))" +
	"\("CPU s guests" | pad(20))\("CPU s host" | pad(16))",
	(.[] | "\(.variant | left(16))\(.runs | pad(5))\(.memory.guest_mb | pad(9))\(.memory.host_mb | pad(8))" +
		"\(cell("sectors_read"; 28))\(cell("sectors_written"; 28))\(cell("seconds"; 20))" +
		"\(cell("guests_cpu_seconds"; 20))\(cell("service_cpu_seconds"; 16))"),
	"",
	"\("variant" | left(16))\("pswpin" | pad(26))\("pswpout" | pad(26))\("majflt" | pad(26))" +
	"\("peak MB held: logical" | pad(24))\("physical" | pad(10))\("service" | pad(10))",
	(.[] | "\(.variant | left(16))\(cell("pswpin"; 26))\(cell("pswpout"; 26))\(cell("majflt"; 26))" +
		"\(mbcell("peak_logical_bytes"; 24))\(mbcell("peak_physical_bytes"; 10))\(mbcell("peak_service_bytes"; 10))"),
	(.[] | select(.failed > 0) | "\(.variant): \(.failed) runs FAILED")),
"",
(.winners[] | title as $t | .of[] |
	"\($t): \(.figure | words): \(.variant), \(.median | round1)" +
	if .clear then "" else ", not clearly: spreads overlap with \(.ties | join(", "))" end)
