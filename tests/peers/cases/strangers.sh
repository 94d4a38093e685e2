#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Who has no certificate of this authority, an expired one, or a name that is not allowed, gets
# nothing and gives nothing; each is counted, and who is a member is served all the while.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3 other expired stranger
make_ca "$work/ca2" 'somebody else'
make_certificate "$work/stranger/pki" "$work/ca2" host9
make_certificate "$work/expired/pki" "$work/ca" host8 \
	'activation_date = "2020-01-01 00:00:00"' 'expiration_date = "2021-01-01 00:00:00"'
for h in host1 host2 host3 other expired stranger; do
	configure $h
	start $h
done
lender_counter() { ctl host2 peer list --json | jq ".lending.counters.$1"; }
refused() { [ "$(lender_counter "$1")" -ge "$2" ]; }
until_true 30 peer_is host1 host2 up
until_true 30 peer_is host1 host3 up
until_true 30 refused refused_name 1
until_true 30 refused refused_tls 2
for h in other expired stranger; do
	for peer in host1 host2 host3; do
		! peer_is $h $peer up || die "$h is served by $peer"
	done
done
for peer in expired stranger; do
	! peer_is host1 $peer up || die "host1 puts pages at $peer"
done
ctl other peer list
guest host1 12000
ask put 0 12000
ask get 0 12000
ctl host2 peer deny host1
until_true 20 peer_is host1 host2 down
ask get 0 12000
ctl host2 peer allow host1
until_true 30 peer_is host1 host2 up
ask get 0 12000
