#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The guest plays the host: tmemd and a client run inside. Every thread of tmemd is an IO flusher
# (case 6, case 7); nearly all memory is taken, then more than all with a slow swap disk: puts are
# refused early, gets go on (case 9), nothing is killed and every page is right.
. "$(dirname "$0")/../lib/case.sh"
. "$vm_src/lib/inner.sh"
inner_need

inner_tmemd > "$vm_work/guest.sh"
cat >> "$vm_work/guest.sh" <<'EOS'
swap=vda

host_ready 190M
configure '[pool]' 'pool_max = 160M' 'host_reserve = 24M'
configure_load
tmemd_run || exit 1
say threads="$(threads)" locked="$(status VmLck)" score="$(cat /proc/$tmemd/oom_score_adj)" \
	nice="$(workers)" capabilities="$(status CapEff)" user="$(status Uid)" seccomp="$(status Seccomp)"

load 16000
more put 1500 120 || exit 1
memhog leave 8 &
hog=$!
more refused 300 120 && more hit 300 120 || exit 1
sleep 5
say full_growth="$(service growth_bytes)" full_short="$(service short)" \
	full_available="$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)" \
	full_evicted="$(client evicted)"
more hit 300 120 || exit 1
say full_slowest_ms="$(slowest)"
kill $hog
wait $hog
more put 1000 120 || exit 1
quiet || exit 1

# The shell itself is swapped out: it looks again when the storm is over.
swap_on $swap || exit 1
before=$(done_of hit)
timeout 15 memhog thrash 200
say swap_hits=$(($(done_of hit) - before)) swap_slowest_ms="$(slowest)" \
	swapped="$(awk '/pswpout/ { print $2 }' /proc/vmstat)" \
	swap_majflt="$(sed 's/.*) //' /proc/$tmemd/task/*/stat | awk '{ n += $10 } END { print n }')"
swapoff /dev/$swap
unload || exit 1
quiet
EOS
guest_disk "$vm_work/swap.img" 512M
inner_boot "$vm_work/guest.sh" \
	-drive "file=$vm_work/swap.img,if=virtio,format=raw,cache=unsafe,throttling.iops-total=2000"
value() { guest_value host "$1"; }
threads=$(value threads)
note "threads with IO_FLUSHER $threads, locked $(value locked) kB, score $(value score)," \
	"capabilities $(value capabilities), seccomp $(value seccomp)"
[ "${threads%/*}" = "${threads#*/}" ] && [ "${threads#*/}" -ge 4 ] ||
	fail 'a thread of tmemd has not the flags of IO_FLUSHER'
[ "$(value locked)" -gt 10000 ] || fail 'memory is not locked'
[ "$(value nice)" = -10, ] || fail "the workers have niceness $(value nice), not -10"
[ "$(value score)" = -999 ] || fail 'oom_score_adj is not -999'
[ "$(value user)/$(value seccomp)" = 999/2 ] || fail 'tmemd is not who it should be'
[ "$((16#$(value capabilities)))" = $((1 << 0 | 1 << 14)) ] ||
	fail 'the capabilities are not CAP_CHOWN and CAP_IPC_LOCK'
note "nearly no memory: $(value full_available) kB available, short $(value full_short)," \
	"growth $(value full_growth), evicted $(value full_evicted)," \
	"slowest operation $(value full_slowest_ms) ms"
[ "$(value full_growth)" = 0 ] || fail 'the pool may grow though the host has no memory'
note "swap storm: $(value swapped) pages swapped out, $(value swap_hits) gets," \
	"$(value swap_majflt) major faults of tmemd, slowest operation $(value swap_slowest_ms) ms"
[ "$(value swapped)" -gt 1000 ] || fail 'the host did not swap'
[ "$(value swap_hits)" -gt 100 ] || fail 'the client came to a stand while the host swapped'
