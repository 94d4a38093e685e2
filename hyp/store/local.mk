# The store. Its one public header is store.h.
noinst_LIBRARIES += libstore.a
libstore_a_CPPFLAGS = $(AM_CPPFLAGS) $(LZ4_CFLAGS) $(XXHASH_CFLAGS) $(GNUTLS_CFLAGS)
libstore_a_SOURCES = \
	hyp/store/store.h hyp/store/store_priv.h \
	hyp/store/alloc.c hyp/store/alloc.h \
	hyp/store/arena.c hyp/store/arena.h \
	hyp/store/away.c hyp/store/away.h \
	hyp/store/cgroup.c hyp/store/cgroup.h \
	hyp/store/client.c \
	hyp/store/codec.c \
	hyp/store/compact.c \
	hyp/store/copies.c \
	hyp/store/evict.c \
	hyp/store/fetch.c \
	hyp/store/image.c \
	hyp/store/index.c \
	hyp/store/lend.c \
	hyp/store/page.c \
	hyp/store/pool.c \
	hyp/store/populate.c \
	hyp/store/pressure.c \
	hyp/store/rebuild.c \
	hyp/store/remotify.c \
	hyp/store/seal.c hyp/store/seal.h \
	hyp/store/store.c \
	hyp/store/tier.h \
	hyp/store/worker.c
