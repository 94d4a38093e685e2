#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A guest with pages at the host goes on in another QEMU, with another tmemd, three times: paused
# while it is saved; running while it is saved (to QEMU's end in the long run), with its pages brought
# before it goes on; and with its pages brought later than that. Every page is right, no accepted put
# was refused, and the guest began one life: case 35. ("Another host" is this one, with nothing of the
# former tmemd left.)
. "$(dirname "$0")/../lib/case.sh"
need stock
need_tools python3

cat > "$vm_work/guest.sh" <<'EOS'
tmem_load || exit 1
swap_on vda || exit 1
pagehog --mb 160 --passes 2 --seed 11 --until /tmp/enough &
hog=$!
say guest=ready
wait_for_host
touch /tmp/enough
wait $hog || exit 1
say disk_errors=$(dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error')
EOS
check 'no image' guest_image stock "$vm_work/guest.img" "$vm_work/guest.sh"
guest_disk "$vm_work/swap.img" 512M
host_setup 512M
host_client vm1 region=4M rings=2

# The guest NAME, by QEMU's arguments beside the usual ones.
start_guest()
{
	local name=$1

	shift
	guest_start "$name" stock 128 2 "$vm_work/guest.img" $(guest_drive "$vm_work/swap.img") \
		-chardev "socket,path=$vm_work/vm1.sock,id=tmem" \
		-device ivshmem-doorbell,vectors=2,chardev=tmem,master=on \
		-monitor "unix:$vm_work/$name.monitor,server=on,wait=off" "$@"
}

# A command to QEMU's monitor, and what it says.
monitor() # NAME COMMAND
{
	python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect(sys.argv[1])
said, prompt = b"", b"(qemu) "
for line in None, sys.argv[2]:
    if line:
        s.sendall(line.encode() + b"\n")
        said = b""
    while not said.endswith(prompt):
        more = s.recv(4096)
        if not more:
            break
        said += more
print(said.decode(errors="replace"))' "$vm_work/$1.monitor" "$2"
}

migrated()
{
	local end=$((SECONDS + 120))

	until monitor "$1" 'info migrate' | grep -q 'status: completed'; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.5
	done
}

# QEMU's part; the machine is in $vm_work/machine then, and QEMU is gone. The guest is paused for it;
# with TMEMD_VM_LONG=1 it runs on until QEMU stops it. Once, under emulation, one that ran on came back
# with a wrong word on its kernel's stack. Why is not known.
migrate()
{
	rm -f "$vm_work/machine"
	[ -n "${TMEMD_VM_LONG:-}" ] || monitor "$1" stop > /dev/null
	monitor "$1" "migrate -d \"exec:cat > $vm_work/machine\"" > /dev/null
	check "$1 was not migrated" migrated "$1"
	monitor "$1" quit > /dev/null
	wait "${guest_pid[$1]}" 2> /dev/null
	unset "guest_pid[$1]"
}

another_host()
{
	tmemd_stop
	rm -rf "$host_tmpfs/arena" "$host_tmpfs/regions"
	mkdir "$host_tmpfs/regions"
	check 'no other tmemd' tmemd_start
}

# Begins to save a guest that runs; two passes are over when this returns.
save_live()
{
	local end=$((SECONDS + 60))

	host_tmemctl save vm1 "$vm_work/pages" --live > "$vm_work/save.log" 2>&1 &
	save=$!
	until grep -q 'pass 2' "$vm_work/save.log"; do
		[ $SECONDS -lt $end ] || fail 'the guest is not saved while it runs'
		sleep 0.1
	done
}

restore() { check 'not restored' host_tmemctl restore vm1 "$vm_work/pages"; }

# A machine that was paused comes as one.
wake_up()
{
	local end=$((SECONDS + 60))

	until monitor "$1" 'info status' | grep -q running; do
		[ $SECONDS -lt $end ] || fail "$1 cannot go on"
		monitor "$1" cont > /dev/null
		sleep 0.5
	done
}

goes_on()
{
	check "$1 does not go on" host_wait_stat vm1 gets_hit -gt 300 120
	check "$1 does not put" host_wait_stat vm1 puts -gt 600 120
}

check 'tmemd does not start' tmemd_start
start_guest first
check 'the guest does not swap' host_wait_stat vm1 pages_persistent -gt 3000 120

monitor first stop > /dev/null
sleep 0.5
check 'not saved' host_tmemctl save vm1 "$vm_work/pages"
pages=$(host_stat vm1 pages_persistent)
migrate first
another_host
restore
[ "$(host_stat vm1 pages_persistent)" = "$pages" ] || fail 'other pages were restored'
start_guest second -incoming "exec:cat $vm_work/machine"
wake_up second
goes_on 'the guest that was paused'

save_live
migrate second
check 'not saved while it ran' wait $save
another_host
restore
start_guest third -incoming "exec:cat $vm_work/machine"
wake_up third
goes_on 'the guest that ran while it was saved'

save_live
migrate third
check 'not saved the third time' wait $save
another_host
start_guest fourth -incoming "exec:cat $vm_work/machine"
wake_up fourth
sleep 5
restore
goes_on 'the guest that had to wait'

guest_say fourth enough
check 'the guest failed' guest_wait_end fourth 300
[ "$(guest_value fourth result)" = intact ] || fail 'pages were wrong'
[ "$(guest_value fourth disk_errors)" = 0 ] || fail 'errors of its swap disk'
[ "$(guest_value fourth lives)" = 1 ] || fail 'the guest had to begin a new life'
[ "$(guest_value fourth posted_failed)" = 0 ] || fail 'an accepted put was refused'
note "$pages pages the first time, $(guest_value fourth resubmitted) operations submitted again," \
	"$(guest_value fourth gets_again) pages asked for again," \
	"$(guest_value fourth verified) pages verified"
