# Tiers over real sockets and real TLS, with certificates that the tests make.
tier_tests = tests/tier/faults tests/tier/hostile tests/tier/peers
check_PROGRAMS += $(tier_tests)
TESTS += $(tier_tests)
TIER_WORLD = tests/tier/keeper.c tests/tier/load.c tests/tier/pki.c tests/tier/pki.h \
	tests/tier/proxy.c tests/tier/world.c tests/tier/world.h
TIER_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(GNUTLS_CFLAGS)
TIER_TEST_LIBS = libtest.a $(TIER_LIBS)

tests_tier_peers_SOURCES = tests/tier/peers.c $(TIER_WORLD)
tests_tier_peers_CPPFLAGS = $(TIER_TEST_CPPFLAGS)
tests_tier_peers_LDADD = $(TIER_TEST_LIBS)
tests_tier_faults_SOURCES = tests/tier/faults.c $(TIER_WORLD)
tests_tier_faults_CPPFLAGS = $(TIER_TEST_CPPFLAGS)
tests_tier_faults_LDADD = $(TIER_TEST_LIBS)
tests_tier_hostile_SOURCES = tests/tier/hostile.c tests/tier/raw.c tests/tier/raw.h $(TIER_WORLD)
tests_tier_hostile_CPPFLAGS = $(TIER_TEST_CPPFLAGS)
tests_tier_hostile_LDADD = $(TIER_TEST_LIBS)
