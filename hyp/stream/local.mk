# Streams: a client's pages to a file or another host, and back.
noinst_LIBRARIES += libstream.a
libstream_a_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
libstream_a_SOURCES = \
	proto/stream.h \
	hyp/stream/stream.h \
	hyp/stream/stream_priv.h \
	hyp/stream/check.c \
	hyp/stream/restore.c \
	hyp/stream/save.c
