# The service: base, store, vhost, front, control, then tmemd itself.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
	proto/tmem_abi.h \
	hyp/base/clock.h \
	hyp/base/counters.c hyp/base/counters.h \
	hyp/base/fault.c hyp/base/fault.h \
	hyp/base/log.c hyp/base/log.h \
	hyp/base/sigbus.c hyp/base/sigbus.h

include hyp/store/local.mk
include hyp/tier/local.mk
include hyp/vhost/local.mk
include hyp/front/local.mk
include hyp/stream/local.mk
include hyp/tier/members.mk
include hyp/control/local.mk

sbin_PROGRAMS += tmemd
tmemd_SOURCES = hyp/tmemd.c hyp/tmemd_priv.h hyp/clients.c hyp/disks.c hyp/domains.c \
	hyp/peers.c \
	hyp/streams.c
tmemd_CPPFLAGS = $(AM_CPPFLAGS) $(EVENT_CFLAGS) -DTMEMD_CONFIG='"$(sysconfdir)/tmemd/tmemd.conf"'
tmemd_LDADD = libcontrol.a libstream.a libfront.a libvhost.a libstore.a libtier.a libbase.a $(EVENT_LIBS) $(INIH_LIBS) \
	$(JANSSON_LIBS) $(SYSTEMD_LIBS) $(SECCOMP_LIBS) $(XEN_LIBS) $(LZ4_LIBS) $(XXHASH_LIBS) \
	$(GNUTLS_LIBS)
