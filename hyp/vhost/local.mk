# The back end of vhost-user. Its one public header is vhost.h.
noinst_LIBRARIES += libvhost.a
libvhost_a_CFLAGS = $(AM_CFLAGS) $(FUZZ_LOADS_CFLAGS)
libvhost_a_SOURCES = \
	hyp/vhost/vhost.h hyp/vhost/vhost_priv.h \
	hyp/vhost/chain.c \
	hyp/vhost/dirty.c \
	hyp/vhost/inflight.c \
	hyp/vhost/memory.c \
	hyp/vhost/message.c \
	hyp/vhost/packed.c \
	hyp/vhost/queue.c \
	hyp/vhost/saved.c \
	hyp/vhost/session.c \
	hyp/vhost/setup.c \
	hyp/vhost/split.c
