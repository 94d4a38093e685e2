# The fronts: how guests reach the store.
noinst_LIBRARIES += libfront.a
libfront_a_CFLAGS = $(AM_CFLAGS) $(FUZZ_LOADS_CFLAGS)
libfront_a_CPPFLAGS = $(AM_CPPFLAGS) $(SYSTEMD_CFLAGS)
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
	hyp/front/ring.c \
	hyp/front/socket.c \
	hyp/front/worker.c
