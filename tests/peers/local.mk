# Hosts that lend each other memory, in network namespaces: make check-peers.
check_PROGRAMS += tests/peers/guest
tests_peers_guest_SOURCES = tests/peers/guest.c
tests_peers_guest_LDADD = libtmemclient.a libtest.a $(XXHASH_LIBS) $(LZ4_LIBS)
EXTRA_DIST += tests/peers/README.md tests/peers/run.sh tests/peers/lib.sh \
	tests/peers/cases/back.sh tests/peers/cases/cut.sh tests/peers/cases/drained.sh \
	tests/peers/cases/full.sh tests/peers/cases/killed.sh tests/peers/cases/lies.sh \
	tests/peers/cases/overflow.sh tests/peers/cases/save.sh tests/peers/cases/strangers.sh

check-peers: all tests/peers/guest
	peers_build=$(abs_builddir) $(srcdir)/tests/peers/run.sh $(PEERS_CASES)

.PHONY: check-peers
