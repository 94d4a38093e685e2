# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Images of dom0 and its guests, and the boot of Xen in QEMU. Sourced after tests/vm's guests.sh,
# inner.sh, and fetch.sh; not run. $vm_work is the run's directory.
#
#   domu_images              make the guests' images, one for each kernel
#   dom0_image CASES...      dom0 with the real tmemd, the guests and these cases
#   xen_boot                 boot it; the console, each line with the seconds of this host, goes to
#                            $vm_work/console.log, what dom0 says to $vm_work/said
#   xen_running              whether it still runs
#   xen_kill                 end it (for traps; may be called twice)
#
# Guests have 5.10 (frontswap as it was made for) and 6.1, which is the kernel of dom0 too.

xen_src=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
declare -A domu_flavour=([5.10]=stock [6.1]=dom0)
xen_pid=

# 6.1 has nothing that the module could attach to, so it has the test of its transport there.
domu_module() # flavour
{
	local test=

	[ "$1" = stock ] || test=TMEM_SELFTEST=1
	MODULE_MAKEFLAGS=$test module_build "$1" "$vm_work/tmem-$1.ko"
}

domu_images()
{
	local kernel

	for kernel in "${!domu_flavour[@]}"; do
		domu_module "${domu_flavour[$kernel]}" || return 1
		GUEST_MODULES='xen-blkfront xen-gntalloc xen-evtchn' guest_image "${domu_flavour[$kernel]}" \
			"$vm_work/$kernel.img.gz" /dev/null || return 1
		gzip -dc "$vm_work/$kernel.img.gz" > "$vm_work/$kernel.img" || return 1
	done
}

# Xen's programs and the libraries that they name, from the packages before those of the system.
dom0_xen() # root
{
	local root=$1 xen bin program file

	xen=$(xen_root)
	bin=usr/lib/xen-$xen_version/bin
	mkdir -p "$root/$bin" "$root/etc/xen/scripts"
	for program in xl xenstored xenconsoled xen-init-dom0 libxl-save-helper; do
		cp "$xen/$bin/$program" "$root/$bin/" || return 1
	done
	cp -P "$xen"/usr/bin/xenstore* "$root/bin/"
	# libxl ends threads by pthread_cancel(), which loads this when it is called.
	ldconfig -p | sed -n 's/.*x86-64.* => \(.*libgcc_s.so.1\)$/\1/p' | head -n 1 > "$vm_work/libraries"
	LD_LIBRARY_PATH=$xen/usr/lib/x86_64-linux-gnu ldd "$root/$bin"/* "$root/bin/xenstore" \
		> "$vm_work/ldd" 2>&1
	if grep 'not found' "$vm_work/ldd" >&2; then
		vm_say 'libraries of xl are missing'
		return 1
	fi
	grep -o '/[^ ]*\.so[^ ]*' "$vm_work/ldd" | sort -u >> "$vm_work/libraries"
	while read -r file; do
		install -D "$file" "$root${file#"$xen"}" || return 1
	done < "$vm_work/libraries"
	printf 'autoballoon="off"\n' > "$root/etc/xen/xl.conf"
	install -m 755 "$xen_src/dom0/block" "$root/etc/xen/scripts/block"
}

dom0_image()
{
	local root file n=10 kernel

	root=$(mktemp -d "$vm_work/dom0.XXXXXX") || return 1
	chmod 755 "$root"
	mkdir -p "$root"/{bin,proc,sys,dev,modules,cases,domu,run,var}
	cp "$(command -v busybox)" "$root/bin/busybox"
	ln -s busybox "$root/bin/sh"
	dom0_xen "$root" || return 1
	while read -r file; do
		cp "$file" "$root/modules/$n-$(basename "$file")"
		n=$((n + 1))
	done < <(kernel_modules dom0 xen-privcmd xenfs xen-evtchn xen-gntdev xen-gntalloc xen-blkback loop)
	for kernel in "${!domu_flavour[@]}"; do
		ln "$vm_work/$kernel.img" "$root/domu/$kernel.img"
		cp "$(kernel_elf "${domu_flavour[$kernel]}")" "$root/domu/vmlinux-$kernel" || return 1
	done
	install -m 755 "$xen_src/dom0/init" "$root/init"
	cp "$xen_src/dom0/lib.sh" "$root/lib.sh"
	inner_tmemd > "$root/inner.sh"
	cp "$xen_src"/cases/*.sh "$root/cases/"
	install -m 755 "$xen_src/../../tools/stream/tmem-xl" "$xen_src/../../tools/xen/xl-tmem" "$root/bin/"
	printf '%s\n' "$@" > "$root/cases.list"
	printf '%s\n' "limit=$case_limit" "kills=$kills" "seed=$seed" > "$root/settings"
	# Not compressed: unpacking takes longer than loading.
	(cd "$root" && find . | cpio -o -H newc --quiet) > "$vm_work/dom0.img" || return 1
	rm -rf "$root"
	inner_programs "$vm_work/dom0.img" "$TMEMD" "$TMEMCTL" /usr/bin/setpriv $(balloon_programs)
}

# A tmemd without libxenctrl has no tmem-balloon; the case memory says so.
balloon_programs()
{
	local program

	for program in "$vm_build/tmem-balloon" "$vm_build/tests/xen/fill"; do
		[ ! -x "$program" ] || printf '%s\n' "$program"
	done
}

stamped()
{
	local line start=${EPOCHREALTIME/./} now

	while IFS= read -r line; do
		now=$((${EPOCHREALTIME/./} - start))
		printf '%4d.%d %s\n' $((now / 1000000)) $((now / 100000 % 10)) "${line%$'\r'}"
	done
}

# -smap: QEMU emulates the return from an interrupt of a PV kernel as if it read its stack as
# supervisor, so dom0 would fault at once. -avx, -avx2, -xsave: with them, vector registers of
# programs get lost when domains take turns on a CPU (seen with QEMU 7.2).
xen_boot()
{
	: > "$vm_work/said"
	qemu-system-x86_64 -accel tcg,thread=multi -cpu max,-smap,-avx,-avx2,-xsave -smp 2 -m 3G \
		-nographic -no-reboot -nodefaults -vga none -net none -serial stdio -serial "file:$vm_work/said" \
		-kernel "$(xen_hypervisor)" -append "console=com1 com1=115200,8n1 loglvl=info \
		guest_loglvl=info dom0_mem=1G,max:1536M dom0_max_vcpus=1 noreboot=0" \
		-initrd "$(kernel_elf dom0) console=hvc0 loglevel=4 panic=-1,$vm_work/dom0.img" \
		< /dev/null > >(stamped > "$vm_work/console.log") 2>&1 &
	xen_pid=$!
}

xen_running() { [ -n "$xen_pid" ] && kill -0 "$xen_pid" 2> /dev/null; }

xen_kill()
{
	[ -n "$xen_pid" ] || return 0
	kill -9 "$xen_pid" 2> /dev/null
	wait "$xen_pid" 2> /dev/null
	xen_pid=
}
