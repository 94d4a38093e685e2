# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# The workload `hog` of tests/vm/consolidate: one guest after the other fills far more memory than
# it has, and frees it, while the others keep to a small working set. What one guest does not use,
# another could: this is the shape that a shared pool is made for.
#
# The guests take turns by finished work, not by the clock: the host tells a guest to begin when the
# one before has finished (workload_conduct). A slow variant takes longer, but its bursts do not
# overlap, so every variant sees the same sequence.

hog_turns() { echo $(((WL_GUESTS * 2 * WL_SCALE + 99) / 100)); }

workload_help() { echo 'bursts of stamped pages, 160 % of memory, by one guest after the other'; }

workload_build() { :; }

workload_files() { :; }

workload_drive() { :; }

workload_conduct()
{
	local names=("$@") turn name

	for ((turn = 0; turn < $(hog_turns); turn++)); do
		name=${names[turn % $#]}
		guest_say "$name" burst
		guest_wait_for "$name" "VALUE turn=${turn}[^0-9]" 600 || return 1
	done
	for name; do guest_say "$name" end; done
}

workload_script()
{
	cat <<-EOS
		hog_turns=$(hog_turns)
		hog_idle_mb=$((WL_MEMORY_MB / 8))
		hog_burst_mb=$((WL_MEMORY_MB * 160 / 100))
	EOS
	cat <<-'EOS'
		workload_setup() { :; }

		# The small working set, checked over and over until the host sends a line.
		hog_idle() {
			rm -f /tmp/line
			pagehog --mb $hog_idle_mb --pause 200 --until /tmp/line --seed $1 > /tmp/idle &
			wait_for_host
			touch /tmp/line
			wait $! || { cat /tmp/idle; return 1; }
		}

		workload_run() {
			local turn=$WL_GUEST_NR bursts=0
			while [ $turn -lt $hog_turns ]; do
				hog_idle $((turn + 100)) || return 1
				pagehog --mb $hog_burst_mb --passes 1 --seed $((turn + 1)) || return 1
				bursts=$((bursts + 1))
				say turn=$turn
				turn=$((turn + WL_GUESTS))
			done
			hog_idle $((turn + 100)) || return 1
			say bursts=$bursts burst_mb=$hog_burst_mb
		}
	EOS
}
