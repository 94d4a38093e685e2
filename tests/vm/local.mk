# Tests with real guests in QEMU, see tests/vm/README.md: make check-vm.
EXTRA_DIST += \
	tests/vm/README.md tests/vm/run.sh tests/vm/demo \
	tests/vm/lib/case.sh tests/vm/lib/guests.sh tests/vm/lib/host.sh tests/vm/lib/kernels.sh tests/vm/lib/results.sh \
	tests/vm/kernel/debug-5.10.config tests/vm/kernel/small-5.10.config \
	tests/vm/programs/pagehog.c tests/vm/programs/stamp.h \
	tests/vm/programs/sorter.c tests/vm/programs/filestamp.c tests/vm/lib/image.sh \
	tests/vm/workloads/hog.sh tests/vm/workloads/qsort.sh tests/vm/workloads/files.sh \
	tests/vm/workloads/make.sh \
	tests/vm/cases/cleancache.sh tests/vm/cases/debug.sh tests/vm/cases/doctor.sh \
	tests/vm/cases/disk.sh tests/vm/cases/filesystem.sh tests/vm/cases/kernels.sh \
	tests/vm/cases/nbd.sh tests/vm/cases/sizing.sh \
	tests/vm/cases/frontswap.sh \
	tests/vm/programs/memhog.c tests/vm/lib/inner.sh tests/vm/cases/hostmem.sh \
	tests/vm/cases/hostgroup.sh \
	tests/vm/consolidate tests/vm/lib/measure.sh tests/vm/lib/variant.sh tests/vm/lib/record.jq \
	tests/vm/lib/line.jq tests/vm/lib/summary.jq tests/vm/lib/table.jq \
	tests/vm/kernel/evidence-5.10.config tests/vm/variants/none.sh tests/vm/variants/tmem.sh \
	tests/vm/variants/zram.sh tests/vm/variants/zswap.sh tests/vm/variants/zswap-50.sh \
	tests/vm/variants/vhost-blk.sh tests/vm/variants/nbd.sh \
	tests/vm/variants/host-zswap.sh tests/vm/variants/host-zswap-ksm.sh \
	tests/vm/cases/consolidate.sh tests/vm/cases/migrate.sh \
	tests/vm/cases/hibernate.sh tests/vm/cases/late.sh tests/vm/cases/limits.sh \
	tests/vm/cases/lost.sh tests/vm/cases/reboot.sh tests/vm/cases/restart.sh \
	tests/vm/cases/selftest.sh

check-vm: all tests/service/ringload
	vm_build=$(abs_builddir) $(srcdir)/tests/vm/run.sh $(VM_CASES)

.PHONY: check-vm
