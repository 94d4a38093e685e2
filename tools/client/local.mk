# The user-space ring client, for tests, the bench and plugins. It needs proto and libc only.
noinst_LIBRARIES += libtmemclient.a
libtmemclient_a_SOURCES = \
	tools/client/tmem_client.c tools/client/tmem_client.h \
	tools/client/tmem_client_priv.h \
	tools/client/tmem_ring.c
