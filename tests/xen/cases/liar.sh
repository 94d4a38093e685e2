# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A guest with a front end of its own (programs/liar.c) offers grants that are none, are for reading
# alone, are another domain's or one page many times, and channels that are not for tmemd; connected, it
# rings without end, fills the ring with garbage, writes over the region, takes its grants back, flips its
# states, and vanishes in the middle. What is wrong is refused and counted. tmemd lives, its memory,
# descriptors and log do not grow, and the guest beside is served all the time.
service_setup
for guest in honest liar; do xen_client $guest $guest; done
check 'tmemd does not start' tmemd_start
dom_swaps /tmp/honest.sh 40
cat > /tmp/liar.sh <<'EOS'
until xs read device/tmem/0/state > /dev/null 2>&1; do sleep 0.2; done
for lie in ungranted huge directory readonly foreign channel channel-own channel-foreign; do
	liar $lie || exit 1
done
say offers=over
wait_for_host
for lie in same revoke flood scribble garbage flip; do
	liar $lie 3 || exit 1
	say $lie=over
done
say deeds=over
wait_for_host
while :; do liar garbage 600; done
EOS
check 'honest was not created' dom_create honest pv 5.10 80 /tmp/honest.sh disk=96
check 'honest does not swap' wait_stat honest pages_persistent -gt 1000 120
check 'liar was not created' dom_create liar pv 6.1 96 /tmp/liar.sh
fds() { ls /proc/$tmemd/fd | wc -l; }
log_lines() { wc -l < /var/log/tmemd.log; }
served()
{
	check "tmemd has gone $1" tmemd_same
	check "honest is not served $1" wait_stat honest gets_hit -gt $(($(stat_of honest gets_hit) + 50)) 60
	[ "$(status RssAnon)" -lt $((rss + 8192)) ] ||
		fail "tmemd took memory $1: $rss kB before, $(status RssAnon) kB now"
	[ "$(fds)" -le $((fds + 4)) ] || fail "tmemd has $(fds) descriptors $1, $fds before"
	[ "$(log_lines)" -lt 300 ] || fail "a guest can fill the log of tmemd $1"
}
state_of() { tr -d '\r' < /var/log/xen/guest-liar.log | sed -n "s/^VALUE lie=$1 state=//p" | tail -n 1; }
check 'the liar does not begin' wait_until 60 xenstore-exists "$(xs_front liar)"
rss=$(status RssAnon)
fds=$(fds)
check 'the offers did not end' dom_wait_for liar offers=over 200
for lie in ungranted huge directory readonly foreign channel channel-own channel-foreign; do
	[ "$(state_of $lie)" = 6 ] || fail "$lie: the state of tmemd's end is '$(state_of $lie)', not 6"
done
refused=$(stat_of liar connects_refused)
note "$refused offers refused: $(sed -n 's/.*domain [0-9]* refused: //p' /var/log/tmemd.log | sort -u | head -n 8 | tr '\n' ';')"
[ "$refused" -ge 8 ] || fail "only $refused of 8 refusals are counted"
served 'after bad offers'

dom_say liar go
check 'the deeds did not end' dom_wait_for liar deeds=over 250
for lie in revoke flood scribble garbage flip; do
	[ "$(state_of $lie)" = 4 ] || fail "$lie: the state of tmemd's end is '$(state_of $lie)', not 4"
done
note "one page 256 times: state $(state_of same)"
note "ring_bad $(stat_of liar ring_bad), ring_broken $(stat_of liar ring_broken)," \
	"refused_no_pool $(stat_of liar refused_no_pool), doorbells_in $(stat_of liar doorbells_in)," \
	"hellos_refused $(stat_of liar hellos_refused)"
for key in ring_bad ring_broken refused_no_pool doorbells_in; do
	[ "$(stat_of liar $key)" -gt 0 ] || fail "$key is not counted"
done
served 'after misbehaviour'

# Vanishes while it is at it.
dom_say liar go
sleep 5
dom_destroy liar
served 'after the liar vanished'
check 'its pages stay' wait_stat liar pages_persistent -eq 0 30
no_zombies() { ! xl list | grep -q '(null)'; }
check 'a domain cannot end, grants are still mapped' wait_until 20 no_zombies
dom_say honest enough
check 'honest failed' dom_wait_end honest 200
dom_check honest
note "memory $rss kB before, $(status RssAnon) after; descriptors $fds, $(fds); log $(log_lines) lines"
