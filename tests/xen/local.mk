# Tests with real Xen in QEMU, see tests/xen/README.md: make check-xen.
EXTRA_DIST += \
	tests/xen/README.md tests/xen/run.sh tests/xen/lib/boot.sh tests/xen/lib/fetch.sh \
	tests/xen/dom0/block tests/xen/dom0/init tests/xen/dom0/lib.sh tests/xen/programs/liar.c tests/xen/programs/xs.c \
	tests/xen/cases/attach.sh tests/xen/cases/destroy.sh tests/xen/cases/frontswap.sh \
	tests/xen/cases/events.sh tests/xen/cases/hostile.sh tests/xen/cases/liar.sh tests/xen/cases/memory.sh \
	tests/xen/cases/restart.sh \
	tests/xen/cases/save.sh tests/xen/cases/selftest.sh tests/xen/cases/smoke.sh \
	tests/xen/cases/xl.sh

# Not a test: what fills the pool in the case memory.
check_PROGRAMS += tests/xen/fill
tests_xen_fill_SOURCES = tests/xen/fill.c $(PLAYER)
tests_xen_fill_LDADD = $(PLAYER_LIBS)

check-xen: all tests/xen/fill
	vm_build=$(abs_builddir) $(srcdir)/tests/xen/run.sh $(XEN_CASES)

.PHONY: check-xen
