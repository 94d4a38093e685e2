# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What tests/vm/consolidate measures, in the guest and on the host. Sourced after guests.sh.
#
#   measure_script          prints the guest's side: setup, state at start, the measured part
#   ticks_of PID            user and system time of a process so far, in clock ticks
#   host_busy NAME...       percent of one CPU, over a second, that others than these guests use
#   host_vmstat KEY         a number of /proc/vmstat, 0 when there is none
#   process_io PID          bytes read and written so far on disks, as the host's kernel counts them
#   guest_figures NAME      KEY=NUMBER of the measured part, one a line

# The workload's functions and the variant's come before this text, WL_GUEST_NR from the kernel's
# command line. A variant whose guests have a disk of tmemd says which in $tmem_disk: that is memory,
# and not counted as a disk. What a sampler costs is the same for all variants that have one: shell
# built-ins and a sleep.
measure_script()
{
	cat <<-'EOS'
		figures() {
			awk '$1 ~ /^(pswpin|pswpout|pgmajfault|oom_kill)$/ { print $1, $2 }' /proc/vmstat
			for disk in vda:swap vdb:drive; do
				stat=/sys/block/${disk%:*}/stat
				[ -f $stat ] && [ ${disk%:*} != "$tmem_disk" ] || continue
				awk -v d="${disk#*:}" \
					'{ print d "_sectors_read", $3; print d "_sectors_written", $7 }' $stat
			done
			awk '{ print "seconds", $1 }' /proc/uptime
		}
		state() {
			awk '/^(MemTotal|MemFree|Cached|SwapTotal|SwapFree|SwapCached):/ {
				printf "VALUE start.%s=%s\n", substr($1, 1, length($1) - 1), $2 }' /proc/meminfo
			say "start.held=$(variant_held)"
		}
		workload_setup || exit 1
		sync
		echo 3 > /proc/sys/vm/drop_caches
		variant_start || exit 1
		state
		say ready=1
		wait_for_host
		if type variant_sample > /dev/null; then
			(while :; do say "sample=$(variant_sample)"; sleep 1; done) &
			sampler=$!
		fi
		figures > /tmp/figures.before
		workload_run
		status=$?
		figures > /tmp/figures.after
		[ -z "$sampler" ] || kill $sampler
		awk 'NR == FNR { before[$1] = $2; next }
			{ printf "VALUE figure.%s=%s\n", $1, $2 - before[$1] }' \
			/tmp/figures.before /tmp/figures.after
		say measured=$status
		wait_for_host
		exit $status
	EOS
}

ticks_of() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# Prints busy ticks of all CPUs so far, and the time of one CPU.
busy_ticks()
{
	awk '$1 == "cpu" { b = $2 + $3 + $4 + $7 + $8 + $9; t = b + $5 + $6 } /^cpu[0-9]/ { n++ }
		END { print b, int(t / n) }' /proc/stat
}

own_ticks()
{
	local name sum=0

	for name; do sum=$((sum + $(ticks_of "$(guest_ps "$name")"))); done
	echo $((sum + $(variant_ticks)))
}

host_busy()
{
	local before after own

	own=$(own_ticks "$@") before=$(busy_ticks)
	sleep 1
	after=$(busy_ticks) own=$(($(own_ticks "$@") - own))
	echo $(((${after% *} - ${before% *} - own) * 100 / (${after#* } - ${before#* } + 1)))
}

host_vmstat() { awk -v k="$1" '$1 == k { n = $2 } END { print n + 0 }' /proc/vmstat; }

process_io()
{
	awk '$1 == "read_bytes:" { r = $2 } $1 == "write_bytes:" { w = $2 } END { print r, w }' \
		"/proc/$1/io"
}

guest_figures()
{
	tr -d '\r' < "$vm_work/$1.log" | sed -n 's/^VALUE figure\.\([a-z_]*=[0-9.-]*\)$/\1/p'
}
