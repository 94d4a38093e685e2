# One test for each source file that has behaviour of its own worth pinning.
check_PROGRAMS += tests/unit/noalloc_test
TESTS += tests/unit/noalloc_test
tests_unit_noalloc_test_SOURCES = tests/model/check.h tests/unit/noalloc_test.c \
	tests/lib/noalloc.c tests/lib/noalloc.h
tests_unit_noalloc_test_LDADD = $(STORE_TEST_LIBS)

if HAVE_CUNIT
UNIT_TESTS = tests/unit/alloc_test tests/unit/arena_test tests/unit/away_test tests/unit/background_test \
	tests/unit/balloon_rules_test \
	tests/unit/base_test tests/unit/cgroup_test tests/unit/client_test \
	tests/unit/codec_test tests/unit/config_test tests/unit/index_test tests/unit/lend_test \
	tests/unit/pages_test tests/unit/parked_test tests/unit/pool_test tests/unit/rebuild_test tests/unit/relay_test \
	tests/unit/seal_test tests/unit/stream_test tests/unit/tier_test \
	tests/unit/vhost_memory_test tests/unit/vhost_queue_test tests/unit/vhost_saved_test \
	tests/unit/xen_nodes_test
check_PROGRAMS += $(UNIT_TESTS)
TESTS += $(UNIT_TESTS)
UNIT_CPPFLAGS = $(AM_CPPFLAGS) $(CUNIT_CFLAGS) $(LZ4_CFLAGS)
UNIT_LIBS = $(STORE_TEST_LIBS) $(CUNIT_LIBS)

tests_unit_alloc_test_SOURCES = tests/unit/alloc_test.c tests/unit/unit.h
tests_unit_alloc_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_alloc_test_LDADD = $(UNIT_LIBS)
tests_unit_arena_test_SOURCES = tests/unit/arena_test.c tests/unit/unit.h
tests_unit_arena_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_arena_test_LDADD = $(UNIT_LIBS)
HOLDERS_TIER = tests/lib/holders.c tests/lib/holders.h
tests_unit_away_test_SOURCES = tests/unit/away_test.c tests/unit/unit.h tests/unit/with_store.h $(HOLDERS_TIER)
tests_unit_away_test_CPPFLAGS = $(UNIT_CPPFLAGS) $(XXHASH_CFLAGS)
tests_unit_away_test_LDADD = $(UNIT_LIBS)
tests_unit_balloon_rules_test_SOURCES = tests/unit/balloon_rules_test.c tests/unit/unit.h \
	tools/xen/balloon.h tools/xen/balloon_rules.c
tests_unit_balloon_rules_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_balloon_rules_test_LDADD = $(CUNIT_LIBS)
tests_unit_base_test_SOURCES = tests/unit/base_test.c tests/unit/unit.h
tests_unit_base_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_base_test_LDADD = $(UNIT_LIBS)
tests_unit_cgroup_test_SOURCES = tests/unit/cgroup_test.c tests/unit/unit.h
tests_unit_cgroup_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_cgroup_test_LDADD = $(UNIT_LIBS)
tests_unit_codec_test_SOURCES = tests/unit/codec_test.c tests/unit/unit.h
tests_unit_codec_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_codec_test_LDADD = $(UNIT_LIBS)
tests_unit_config_test_SOURCES = tests/unit/config_test.c tests/unit/unit.h
tests_unit_config_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_config_test_LDADD = libcontrol.a $(UNIT_LIBS) $(INIH_LIBS)
tests_unit_lend_test_SOURCES = tests/unit/lend_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_lend_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_lend_test_LDADD = $(UNIT_LIBS)
tests_unit_index_test_SOURCES = tests/unit/index_test.c tests/unit/unit.h
tests_unit_index_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_index_test_LDADD = $(UNIT_LIBS)
tests_unit_pages_test_SOURCES = tests/unit/pages_test.c tests/unit/unit.h
tests_unit_pages_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_pages_test_LDADD = $(UNIT_LIBS)
tests_unit_parked_test_SOURCES = tests/unit/parked_test.c tests/unit/unit.h
tests_unit_parked_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_parked_test_LDADD = libfront.a libvhost.a $(UNIT_LIBS)
tests_unit_background_test_SOURCES = tests/unit/background_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_background_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_background_test_LDADD = $(UNIT_LIBS)
tests_unit_client_test_SOURCES = tests/unit/client_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_client_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_client_test_LDADD = $(UNIT_LIBS)
tests_unit_pool_test_SOURCES = tests/unit/pool_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_pool_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_pool_test_LDADD = $(UNIT_LIBS)
tests_unit_relay_test_SOURCES = tests/unit/relay_test.c tests/unit/unit.h \
	tools/backend/relay.c tools/backend/relay.h
tests_unit_relay_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_relay_test_LDADD = $(CUNIT_LIBS)

tests_unit_xen_nodes_test_SOURCES = tests/unit/xen_nodes_test.c tests/unit/unit.h \
	hyp/front/xen_nodes.c hyp/front/xen_nodes.h
tests_unit_xen_nodes_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_xen_nodes_test_LDADD = $(CUNIT_LIBS)

tests_unit_rebuild_test_SOURCES = tests/unit/rebuild_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_rebuild_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_rebuild_test_LDADD = $(UNIT_LIBS)

tests_unit_seal_test_SOURCES = tests/unit/seal_test.c tests/unit/unit.h
tests_unit_seal_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_seal_test_LDADD = $(UNIT_LIBS)

tests_unit_stream_test_SOURCES = tests/unit/stream_test.c tests/unit/unit.h tests/unit/with_store.h
tests_unit_stream_test_CPPFLAGS = $(UNIT_CPPFLAGS) $(XXHASH_CFLAGS)
tests_unit_stream_test_LDADD = libstream.a $(UNIT_LIBS)
EXTRA_DIST += tests/unit/streams

tests_unit_tier_test_SOURCES = tests/unit/tier_test.c tests/unit/unit.h tests/lib/rng.h
tests_unit_tier_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_tier_test_LDADD = libtier.a $(CUNIT_LIBS)

if HAVE_LIBXML2
check_PROGRAMS += tests/unit/domain_test
TESTS += tests/unit/domain_test
tests_unit_domain_test_SOURCES = tests/unit/domain_test.c tests/unit/unit.h
tests_unit_domain_test_CPPFLAGS = $(UNIT_CPPFLAGS) $(LIBXML2_CFLAGS)
tests_unit_domain_test_LDADD = libdomain.a $(LIBXML2_LIBS) $(CUNIT_LIBS)
endif

VHOST_PEER = tests/unit/vhost_peer.c tests/unit/vhost_peer.h tests/unit/unit.h
tests_unit_vhost_memory_test_SOURCES = tests/unit/vhost_memory_test.c $(VHOST_PEER)
tests_unit_vhost_memory_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_vhost_memory_test_LDADD = libvhost.a libbase.a $(CUNIT_LIBS)
tests_unit_vhost_saved_test_SOURCES = tests/unit/vhost_saved_test.c $(VHOST_PEER)
tests_unit_vhost_saved_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_vhost_saved_test_LDADD = libvhost.a libbase.a $(CUNIT_LIBS)
tests_unit_vhost_queue_test_SOURCES = tests/unit/vhost_queue_test.c $(VHOST_PEER)
tests_unit_vhost_queue_test_CPPFLAGS = $(UNIT_CPPFLAGS)
tests_unit_vhost_queue_test_LDADD = libvhost.a libbase.a $(CUNIT_LIBS)
endif
