# The guest module is built by kbuild, see guest/README.md. Its sources are installed where DKMS
# looks for them.
tmemsrcdir = $(prefix)/src/tmem-$(PACKAGE_VERSION)
dist_tmemsrc_DATA = \
	guest/Kbuild guest/Makefile guest/dkms.conf guest/README.md \
	guest/bring_back.c guest/cleancache.c guest/flush.c guest/frontswap.c guest/ivshmem.c \
	guest/link.c guest/main.c guest/outstanding.c guest/pools.c guest/ring.c guest/selftest.c guest/slots.c \
	guest/stats.c guest/tmem_priv.h guest/xen.c
nodist_tmemsrc_DATA = proto/tmem_abi.h
tmemprobedir = $(tmemsrcdir)/probe
dist_tmemprobe_DATA = \
	guest/probe/cleancache.c guest/probe/frontswap.c guest/probe/frontswap_returns.c \
	guest/probe/frontswap_shrink.c guest/probe/xen.c guest/probe/xen_end_readonly.c \
	guest/probe/xen_remove_returns.c

dist_check_SCRIPTS = guest/version_test.sh
TESTS += guest/version_test.sh
EXTRA_DIST += docs/guest-linux.md docs/qemu.md
