# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A guest that writes to its device's directory what it likes: references of grants that it never
# made, channels that are not its own, states in any order, nodes that are no numbers, huge or gone;
# then vanishes. tmemd lives, uses no memory for it, and the guest beside is served all the time.
service_setup
for guest in honest liar; do xen_client $guest $guest; done
check 'tmemd does not start' tmemd_start
dom_swaps /tmp/honest.sh 40
# Without the module, until the end. Each round is one way to lie; states come between.
cat > /tmp/liar.sh <<'EOS'
d=device/tmem/0
until xs read $d/state > /dev/null 2>&1; do sleep 0.2; done
attempts=0
lie() # nodes and values
{
	while [ $# -gt 1 ]; do
		xs write "$d/$1" "$2" 2> /dev/null
		shift 2
	done
	attempts=$((attempts + 1))
}
long=$(head -c 1500 /dev/zero | tr '\0' 9)
odd="0 1 -1 x 1,2 99999 3145728 4294967295 4294967296 18446744073709551616 $long"
# Sane but for the grants and the channel, which nobody made: the base of what follows.
sane() { lie region-bytes 1048576 rings 1 directory-ref-0 8 event-channel-0 8; }
for state in 1 2 3 4 5 6 7 0 -1 4294967299 x "$long"; do
	sane
	lie state "$state"
done
for node in region-bytes rings directory-ref-0 event-channel-0; do
	for value in $odd ''; do
		lie state 1
		sane
		lie "$node" "$value" state 3
	done
done
lie state 1
sane
lie state 3
say grants=wrong attempts=$attempts
# Nodes that go: one after the other, then the directory.
for node in region-bytes rings directory-ref-0 event-channel-0 state backend backend-id; do
	xs rm $d/$node 2> /dev/null
	lie state 3
done
xs rm $d
xs mkdir $d
sane
lie state 3
xs rm $d
# What is not the guest's.
for path in /local/domain/0/backend/tmem/$(xs read domid)/0/state /local/domain/0/name; do
	! xs write $path 6 2> /dev/null || say written=$path
done
n=0
while [ $n -lt 200 ]; do
	xs mkdir $d/dir$n 2> /dev/null || break
	n=$((n + 1))
done
lie state 3
say liar=over
wait_for_host
EOS
check 'honest was not created' dom_create honest pv 5.10 80 /tmp/honest.sh disk=96
check 'liar was not created' dom_create liar pv 5.10 80 /tmp/liar.sh
check 'honest does not swap' wait_stat honest pages_persistent -gt 1000 120
# Its own; the arena fills with the pages of the honest one.
memory() { status RssAnon; }
check 'liar does not begin' wait_until 60 xenstore-exists "$(xs_front liar)"
rss=$(memory)
check 'the lies did not end' dom_wait_for liar liar=over 240
note "$(dom_value liar attempts) attempts, $(stat_of liar connects_refused) refused"
[ "$(stat_of liar connects_refused)" -gt 0 ] || fail 'what is refused is not counted'
[ -z "$(dom_value liar written)" ] || fail "a guest could write $(dom_value liar written)"
served()
{
	check "tmemd has gone $1" tmemd_same
	check "honest is not served $1" wait_stat honest gets_hit -gt $(($(stat_of honest gets_hit) + 50)) 60
}
served 'after the lies'
[ "$(memory)" -lt $((rss + 8192)) ] || fail "tmemd took memory for lies: $rss kB before, $(memory) kB now"
[ "$(wc -l < /var/log/tmemd.log)" -lt 300 ] || fail 'a guest can fill the log of tmemd'
dom_destroy liar
served 'after the liar went'

# One that vanishes as soon as it is connected, or before: no grants stay mapped, else zombies.
cat > /tmp/vanish.sh <<'EOS'
tmem_load
poweroff -f
EOS
round=0
while [ $round -lt 3 ]; do
	round=$((round + 1))
	check 'liar was not created again' dom_create liar pv 5.10 80 /tmp/vanish.sh
	check 'liar does not end' wait_until 60 dom_gone liar
done
served 'after guests that vanish'
zombies() { xl list | awk 'NR > 1' | grep -c '(null)'; }
no_zombies() { [ "$(zombies)" = 0 ]; }
check 'domains cannot end, grants are still mapped' wait_until 20 no_zombies
dom_say honest enough
check 'honest failed' dom_wait_end honest 120
dom_check honest
note "log of tmemd: $(wc -l < /var/log/tmemd.log) lines"
