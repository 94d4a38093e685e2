# The fronts: how guests reach the store.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(FUZZ_LOADS_CFLAGS)
libfront_a_CPPFLAGS = $(AM_CPPFLAGS) $(SYSTEMD_CFLAGS) $(XEN_CFLAGS)
libfront_a_SOURCES = \
	hyp/front/front.h hyp/front/front_priv.h \
	hyp/front/bell.c \
	hyp/front/blk.c \
	hyp/front/credits.c \
	hyp/front/disk.c hyp/front/disk_priv.h \
	hyp/front/disk_queue.c \
	hyp/front/disk_record.c \
	hyp/front/disk_session.c \
	hyp/front/door.c \
	hyp/front/fdstore.c \
	hyp/front/front.c \
	hyp/front/ivshmem.c \
	hyp/front/life.c \
	hyp/front/owner.c \
	hyp/front/region.c \
	hyp/front/parked.c \
	hyp/front/ring.c \
	hyp/front/socket.c \
	hyp/front/stream.c \
	hyp/front/worker.c \
	hyp/front/xen_nodes.c hyp/front/xen_nodes.h
if HAVE_XEN
libfront_a_SOURCES += hyp/front/xen.c hyp/front/xen_domain.c hyp/front/xen_link.c \
	hyp/front/xen_priv.h hyp/front/xen_store.c
else
libfront_a_SOURCES += hyp/front/xen_absent.c
endif
