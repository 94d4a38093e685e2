# Manual pages. The list of counters is made from the lists that the service counts by.
dist_man_MANS += \
	docs/man/libvirt-hook.8 \
	docs/man/tmem-vhost-user-blk.1 \
	docs/man/tmemctl.1 \
	docs/man/tmemd.conf.5 \
	docs/man/tmemd.8 \
	docs/man/xl-tmem.1
if HAVE_XENCONTROL
dist_man_MANS += docs/man/tmem-balloon.8
endif
EXTRA_DIST += docs/man/tmem-balloon.8
if HAVE_NBDKIT
dist_man_MANS += docs/man/nbdkit-tmem-plugin.1
endif
EXTRA_DIST += docs/man/nbdkit-tmem-plugin.1
nodist_man_MANS = tmemd-counters.7
CLEANFILES += tmemd-counters.7

noinst_PROGRAMS += counters-man
counters_man_SOURCES = docs/man/counters-man.c
counters_man_LDADD = libbase.a

tmemd-counters.7: counters-man$(EXEEXT)
	$(AM_V_GEN)./counters-man$(EXEEXT) > $@.tmp && mv $@.tmp $@

EXTRA_DIST += docs/cases.md docs/control-protocol.md docs/operators-guide.md docs/peer-protocol.md
