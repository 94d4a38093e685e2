# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Guests in QEMU: test programs, initramfs, boot, talk over the serial console. Sourced after
# kernels.sh, not run. `vm_work` names a directory of this run.
#
#   vm_accel FLAVOUR          sets vm_accel_args: KVM if a test boot of this kernel works, else TCG
#   vm_programs               build the static test programs into $vm_work/bin
#   guest_image FLAVOUR OUT SCRIPT [FILE...]
#                             initramfs OUT for a kernel: busybox, the test programs, tmem.ko, FILEs
#                             (in /), and SCRIPT, which /init sources after loading virtio drivers
#                             (GUEST_MODULES: others)
#   guest_disk OUT SIZE       an empty raw disk
#   guest_start NAME FLAVOUR MB CPUS IMAGE [QEMU ARGUMENT...]
#                             boot in the background; serial output in $vm_work/NAME.log
#                             (maxcpus is one more: with one CPU that stays alone QEMU's emulation
#                             leaves out memory barriers and atomicity, and tmem shares memory
#                             with another process; no_timer_check: an emulator that has to wait
#                             for a busy host must not look like a broken timer)
#   guest_tmem SOCKET RINGS   print the QEMU arguments of a tmem device
#   guest_drive FILE          print those of a raw virtio disk
#   guest_vhost MB SOCKET[,KEY=VALUE...]...
#                             print those of disks that tmemd serves, with properties of the device,
#                             and of memory that they can share: MB as for guest_start
#   guest_nbd SOCKET[,KEY=VALUE...]...
#                             print those of disks that an NBD server has at a Unix socket, with
#                             properties of the device; nothing of the guest's memory is shared
#   guest_wait_for NAME PATTERN SECONDS
#                             wait until a line of the output matches; fails when QEMU ends before
#   guest_say NAME LINE       a line to the guest's console, where scripts `read` it
#   guest_value NAME KEY      the last KEY=VALUE of the output
#   guest_wait_end NAME SECONDS
#                             wait until the guest powers off; fails unless its script ended with 0
#   guest_ps NAME             the pid of QEMU
#   guests_kill               end all guests of this shell (for traps; may be called twice)
#
# In a guest's script: `tmem_load [PARAMETER=VALUE...]`, `swap_on DISK`, `say KEY=VALUE`,
# `sectors_written DISK`, `sectors_read DISK`, `counter NAME` (of debugfs tmem/counters), and
# `wait_for_host`, which reads a line. The guest's result is the script's exit status.

: "${vm_work:?set vm_work to a directory of this run}"
vm_accel_args=()
declare -A guest_pid guest_in

vm_accel()
{
	[ ${#vm_accel_args[@]} -gt 0 ] && return 0
	if [ -n "${TMEMD_VM_ACCEL:-}" ]; then
		read -ra vm_accel_args <<< "$TMEMD_VM_ACCEL"
	elif [ -w /dev/kvm ] && vm_kvm_boots "$1"; then
		vm_accel_args=(-accel kvm -cpu host)
	else
		vm_accel_args=(-accel "tcg,thread=multi" -cpu max)
	fi
}

# /dev/kvm may be there and not work (nested virtualisation that was switched off).
vm_kvm_boots()
{
	local image=$vm_work/kvm-probe.img

	printf 'say kvm=works\n' > "$vm_work/kvm-probe.sh"
	guest_image "$1" "$image" "$vm_work/kvm-probe.sh" &&
		timeout 30 qemu-system-x86_64 -accel kvm -cpu host -m 256 -nodefaults -nographic \
			-no-reboot -serial stdio -kernel "$(kernel_image "$1")" -initrd "$image" \
			-append 'console=ttyS0 quiet panic=-1' < /dev/null 2> /dev/null |
		grep -q 'kvm=works'
}

vm_programs()
{
	local source

	mkdir -p "$vm_work/bin"
	for source in "$vm_src"/programs/*.c; do
		"${CC:-gcc}" -std=gnu11 -O2 -Wall -Wextra -static -o \
			"$vm_work/bin/$(basename "$source" .c)" "$source" || return 1
	done
}

guest_init()
{
	cat <<'INIT'
#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t debugfs debug /sys/kernel/debug 2>/dev/null
for module in /modules/*.ko; do
	[ ! -f "$module" ] || insmod "$module" || echo "insmod $module failed"
done
say() { echo "VALUE $*"; }
tmem_load() { insmod /tmem.ko "$@" && sleep 0.2; }
swap_on() { mkswap "/dev/$1" >/dev/null && swapon "/dev/$1"; }
stat_of() { awk -v f="$2" '{ print $f }' "/sys/block/$1/stat"; }
sectors_read() { stat_of "$1" 3; }
sectors_written() { stat_of "$1" 7; }
counter() { awk -v n="$1" '$1 == n { print $2 }' /sys/kernel/debug/tmem/counters; }
held() { awk '$1 == "held_pages:" { print $2 }' /sys/kernel/debug/tmem/state; }
wait_for_host() { read -r line; }
echo "GUEST-UP $(uname -r) $(cut -d' ' -f1 /proc/uptime)"
(. /script.sh)
status=$?
[ ! -f /sys/kernel/debug/tmem/counters ] || sed 's/^/COUNTER /;s/ \([0-9]*\)$/=\1/' \
	/sys/kernel/debug/tmem/counters
dmesg | grep -E 'BUG|WARNING|INFO: task|possible .* lock|deadlock|Call Trace' | sed 's/^/SPLAT /'
echo "GUEST-DONE $status"
sync
poweroff -f
INIT
}

guest_image()
{
	local flavour=$1 out=$2 script=$3 root module file n=10

	shift 3
	[ -x "$vm_work/bin/pagehog" ] || vm_programs || return 1
	module=$vm_work/tmem-$flavour.ko
	[ -f "$module" ] || suite_of "$flavour" > /dev/null ||
		module_build "$flavour" "$module" || return 1
	root=$(mktemp -d "$vm_work/root.XXXXXX") || return 1
	mkdir -p "$root"/{bin,proc,sys,dev,tmp,mnt,modules}
	cp "$(command -v busybox)" "$root/bin/busybox"
	ln -s busybox "$root/bin/sh"
	cp "$vm_work"/bin/* "$root/bin"
	[ ! -f "$module" ] || cp "$module" "$root/tmem.ko"
	cp "$script" "$root/script.sh"
	for file; do cp "$file" "$root/"; done
	while read -r file; do
		case $file in
		*.xz) xz -dc "$file" > "$root/modules/$n-$(basename "$file" .xz)" || return 1 ;;
		*.zst) zstd -dcq "$file" > "$root/modules/$n-$(basename "$file" .zst)" || return 1 ;;
		*) cp "$file" "$root/modules/$n-$(basename "$file")" ;;
		esac
		n=$((n + 1))
	done < <(kernel_modules "$flavour" ${GUEST_MODULES:-virtio_pci virtio_blk})
	guest_init > "$root/init"
	chmod +x "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$out"
	rm -rf "$root"
}

guest_disk() { truncate -s "$2" "$1"; }

guest_tmem()
{
	local id

	id=tmem$(basename "$1" | tr -cd 'a-zA-Z0-9')
	printf '%s\n' -chardev "socket,path=$1,id=$id" \
		-device "ivshmem-doorbell,vectors=$2,chardev=$id"
}

guest_vhost()
{
	local mb=$1 id disk n=0

	shift
	printf '%s\n' -object "memory-backend-memfd,id=shared,size=${mb}M,share=on" \
		-machine memory-backend=shared
	for disk; do
		id=vhost$((n++))
		printf '%s\n' -chardev "socket,path=${disk%%,*},id=$id,reconnect=1" \
			-device "vhost-user-blk-pci,chardev=$id${disk#"${disk%%,*}"}"
	done
}

guest_nbd()
{
	local disk n=0

	for disk; do
		printf '%s\n' -blockdev "driver=nbd,node-name=nbd$n,server.type=unix,server.path=${disk%%,*},reconnect-delay=60,discard=unmap" \
			-device "virtio-blk-pci,drive=nbd$n${disk#"${disk%%,*}"}"
		n=$((n + 1))
	done
}

guest_drive() { printf '%s\n' -drive "file=$1,if=virtio,format=raw,cache=unsafe"; }

guest_start()
{
	local name=$1 flavour=$2 mb=$3 cpus=$4 image=$5 fd

	shift 5
	vm_accel "$flavour"
	rm -f "$vm_work/$name.in"
	mkfifo "$vm_work/$name.in" || return 1
	qemu-system-x86_64 "${vm_accel_args[@]}" -name "$name" -m "$mb" \
		-smp "$cpus,maxcpus=$((cpus + 1))" -nodefaults \
		-nographic -serial stdio -kernel "$(kernel_image "$flavour")" -initrd "$image" \
		-append "console=ttyS0 loglevel=5 panic=-1 no_timer_check rootfstype=ramfs ${GUEST_APPEND:-}" ${GUEST_REBOOTS:--no-reboot} \
		"$@" < "$vm_work/$name.in" > "$vm_work/$name.log" 2>&1 &
	guest_pid[$name]=$!
	exec {fd}> "$vm_work/$name.in"
	guest_in[$name]=$fd
}

guest_ps() { printf '%s\n' "${guest_pid[$1]}"; }

guest_say() { printf '%s\n' "$2" >&"${guest_in[$1]}"; }

guest_wait_for()
{
	local name=$1 pattern=$2 end=$((SECONDS + $3))

	until grep -aqE "$pattern" "$vm_work/$name.log"; do
		if [ $SECONDS -ge $end ]; then
			vm_say "$name: no '$pattern' within $3 s"
			return 1
		fi
		if ! kill -0 "${guest_pid[$name]}" 2> /dev/null; then
			grep -aqE "$pattern" "$vm_work/$name.log" && return 0
			vm_say "$name: QEMU ended before '$pattern'"
			return 1
		fi
		sleep 0.2
	done
}

guest_value()
{
	tr -d '\r' < "$vm_work/$1.log" | grep -aoE "(^| )$2=[^ ]*" | tail -n 1 | cut -d= -f2
}

guest_wait_end()
{
	local name=$1 end=$((SECONDS + $2)) status

	while kill -0 "${guest_pid[$name]}" 2> /dev/null; do
		if [ $SECONDS -ge $end ]; then
			vm_say "$name: still running after $2 s"
			return 1
		fi
		sleep 0.2
	done
	wait "${guest_pid[$name]}" 2> /dev/null
	unset "guest_pid[$name]"
	eval "exec ${guest_in[$name]}>&-"
	status=$(tr -d '\r' < "$vm_work/$name.log" | sed -n 's/.*GUEST-DONE //p' | tail -n 1)
	if [ "$status" != 0 ]; then
		vm_say "$name: the guest's script ended with '${status:-no status}'"
		return 1
	fi
	if grep -a 'SPLAT' "$vm_work/$name.log" >&2; then
		vm_say "$name: the guest's kernel complains"
		return 1
	fi
}

guests_kill()
{
	local name

	for name in "${!guest_pid[@]}"; do
		kill -9 "${guest_pid[$name]}" 2> /dev/null
		wait "${guest_pid[$name]}" 2> /dev/null
		unset "guest_pid[$name]"
	done
}
