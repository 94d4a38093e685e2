#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A client whose pages are away in part is saved: all of them are in the stream.
. "$(dirname "$0")/../lib.sh"

hosts host1 host2 host3
for h in host1 host2 host3; do
	configure $h '[disk swap]' 'size = 64M' 'overcommit = yes'
	start $h
done
until_true 20 all_up host1
guest host1 16000
ask put 0 16000
away=$(client_counter host1 pages_away)
must_be 'pages away' "$away" -gt 3000
ctl host1 save vm "$work/stream" --live --pause true
ask get 0 16000
pages=$(ctl host1 list --json | jq '.clients[] | select(.name == "vm") | .pages_persistent')
echo "  $pages pages, $away away, $(stat -c %s "$work/stream") bytes of stream"
must_be 'bytes of the stream' "$(stat -c %s "$work/stream")" -gt 20000000
