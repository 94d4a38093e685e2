# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What each script in cases/ begins with: a libvirt of its own. The case runs in namespaces of its
# own for mounts and processes (run.sh does that), in which /etc/libvirt, /run and what libvirt
# keeps are empty directories of this run. So libvirtd and virtlogd are started here as they are on
# any host, know no machine but ours, run no hook but ours, and end with the case.
#
#   libvirt_start                  start virtlogd and libvirtd, with our hook
#   domain_define NAME MB [XML]    a machine with the kernel debian12 and $vm_work/guest.img; XML goes
#                                  into <domain>
#   domain_start NAME [OPTION...]  virsh start; then the functions of tests/vm/lib/guests.sh know it
#   domain_begin NAME PAUSED       the same for one that is running already (after a restore)
#   domain_wait_end NAME SECONDS   guest_wait_end, and libvirt has heard of it: it may be started again
#   soon COMMAND...                wait until it succeeds, a minute at most
#   says TEXT COMMAND...           false unless the command fails and says the text
#   there NAME                     true when tmemd has the disk
#   guest_prelude                  print what guests' scripts begin with
#
# And all of tests/vm/lib/case.sh, guests.sh and host.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../vm/lib/case.sh"

[ "${TMEMD_LIBVIRT_PRIVATE:-}" = yes ] || fail 'run this by tests/libvirt/run.sh'
for program in libvirtd virtlogd virsh; do
	command -v $program > /dev/null || skip "$program is not installed"
done
[ -x "$vm_build/tmemctl-libvirt" ] && [ -x "$vm_build/libvirt-hook" ] ||
	skip 'built without libxml2'
need debian12
export TMEMCTL_LIBEXEC=$vm_build LIBVIRT_DEFAULT_URI=qemu:///system
URI=$LIBVIRT_DEFAULT_URI
HOOK=$vm_build/libvirt-hook
chmod 755 "$vm_work" # for the user that QEMU runs as

private_directory() # directory
{
	[ -d "$1" ] || mkdir -p "$1" || return 1
	mkdir -p "$vm_work/private$1" && mount --bind "$vm_work/private$1" "$1"
}

libvirt_start()
{
	local dir

	for dir in /etc/libvirt /var/lib/libvirt /var/log/libvirt; do
		private_directory $dir || return 1
	done
	# What libvirtd finds out about QEMU takes seconds; the cases of a run share it.
	mkdir -p /var/cache/libvirt && mount --bind "$TMEMD_LIBVIRT_CACHE" /var/cache/libvirt || return 1
	mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/tmem || return 1
	ln -s "$vm_work/control.sock" /run/tmem/control.sock
	install -D -m 755 "$HOOK" /etc/libvirt/hooks/qemu.d/tmem || return 1
	# AppArmor and SELinux of this host know nothing of the directories of a test.
	echo 'security_driver = "none"' > /etc/libvirt/qemu.conf
	virtlogd -d && libvirtd -d || return 1
	soon virsh uri > /dev/null 2>&1
}

domain_define()
{
	local name=$1 mb=$2 type=qemu

	vm_accel debian12
	[[ ${vm_accel_args[*]} != *kvm* ]] || type=kvm
	[ -e "$vm_work/kernel" ] || install -m 644 "$(kernel_image debian12)" "$vm_work/kernel"
	chmod 644 "$vm_work/guest.img"
	rm -f "$vm_work/$name.in" "$vm_work/$name.out"
	mkfifo -m 666 "$vm_work/$name.in" "$vm_work/$name.out" || return 1
	# Two CPUs that could be, for TCG: see guest_start.
	cat > "$vm_work/$name.xml" <<-XML
		<domain type='$type'>
		  <name>$name</name>
		  <memory unit='MiB'>$mb</memory>
		  <vcpu current='1'>2</vcpu>
		  ${3:-}
		  <os>
		    <type arch='x86_64' machine='pc'>hvm</type>
		    <kernel>$vm_work/kernel</kernel>
		    <initrd>$vm_work/guest.img</initrd>
		    <cmdline>console=ttyS0 loglevel=5 panic=-1 rootfstype=ramfs</cmdline>
		  </os>
		  <features><acpi/></features>
		  <on_reboot>destroy</on_reboot>
		  <devices>
		    <serial type='pipe'><source path='$vm_work/$name'/></serial>
		    <memballoon model='none'/>
		  </devices>
		</domain>
	XML
	virsh define "$vm_work/$name.xml" > /dev/null
}

# What the guest says goes to its log; the fifo is kept open, so that no byte is lost between lives.
domain_begin()
{
	local name=$1 fd

	guest_pid[$name]=$(cat "/run/libvirt/qemu/$name.pid") || return 1
	exec {fd}<> "$vm_work/$name.in"
	guest_in[$name]=$fd
}

domain_start()
{
	local name=$1

	cat <> "$vm_work/$name.out" > "$vm_work/$name.log" &
	virsh start "$@" > "$vm_work/starting.txt" 2>&1 || return 1
	domain_begin "$name"
}

# QEMU is gone a moment before libvirt has noticed; until then it says that the domain is active.
domain_wait_end()
{
	guest_wait_end "$@" && soon domain_is_off "$1"
}

domain_is_off() { [ "$(virsh domstate "$1" | head -n 1)" = 'shut off' ]; }

soon()
{
	local end=$((SECONDS + 60))

	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

says()
{
	local text=$1 said

	shift
	if said=$("$@" 2>&1); then
		vm_say "$*: no error, but: $said"
		return 1
	fi
	[[ $said == *"$text"* ]] && return 0
	vm_say "$* says: $said"
	return 1
}

there() { host_tmemctl disk list --json | jq -e --arg n "$1" 'any(.disks[]; .name == $n)' > /dev/null; }

guest_prelude()
{
	cat <<-'EOS'
		# Waits for the disk, which may be plugged in late, and swaps to it.
		swap_begin() {
			until [ -b /dev/vda ]; do sleep 0.2; done
			say serial=$(cat /sys/block/vda/serial)
			echo 0 > /sys/block/vda/queue/rotational
			mkswap /dev/vda > /dev/null && swapon -dpages /dev/vda
		}
		# Fills more memory than there is until told; true when every page was right.
		swap_fill() {
			rm -f /tmp/enough
			pagehog --mb 110 --passes 1 --seed 7 --until /tmp/enough &
			hog=$!
			wait_for_host
			touch /tmp/enough
			wait $hog
		}
		swap_errors() { dmesg | grep -cE 'I/O error|[Ww]rite-error|[Rr]ead-error'; }
	EOS
}
