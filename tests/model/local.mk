# Tests of the store's contract; the content of pages and the scratch directory are the bench's too.
noinst_LIBRARIES += libtest.a
libtest_a_SOURCES = \
	tests/lib/pages.c tests/lib/pages.h tests/lib/rng.h \
	tests/lib/scratch.c tests/lib/scratch.h

STORE_TEST_LIBS = libtest.a libstore.a libbase.a $(LZ4_LIBS) $(XXHASH_LIBS) $(GNUTLS_LIBS)

check_PROGRAMS += tests/model/model tests/model/crash tests/model/enumerate tests/model/damage \
	tests/model/limits tests/model/full tests/model/object tests/model/away
TESTS += tests/model/model tests/model/crash tests/model/enumerate tests/model/damage \
	tests/model/limits tests/model/full tests/model/object tests/model/away

tests_model_model_SOURCES = \
	tests/model/audit.c tests/model/exact.c tests/model/model.c tests/model/model.h \
	tests/model/operator.c tests/model/race.c
tests_model_model_LDADD = $(STORE_TEST_LIBS)

CRASH = tests/model/crash.h tests/model/crash_check.c tests/model/crash_ops.c
tests_model_crash_SOURCES = tests/model/crash.c $(CRASH)
tests_model_crash_LDADD = $(STORE_TEST_LIBS)
tests_model_enumerate_SOURCES = tests/model/enumerate.c $(CRASH)
tests_model_enumerate_LDADD = $(STORE_TEST_LIBS)

tests_model_damage_SOURCES = tests/model/check.h tests/model/damage.c
tests_model_damage_LDADD = $(STORE_TEST_LIBS)

tests_model_limits_SOURCES = tests/model/check.h tests/model/limits.c
tests_model_limits_LDADD = $(STORE_TEST_LIBS)

tests_model_full_SOURCES = tests/model/check.h tests/model/full.c
tests_model_full_LDADD = $(STORE_TEST_LIBS)

tests_model_object_SOURCES = tests/model/check.h tests/model/object.c
tests_model_object_LDADD = $(STORE_TEST_LIBS)

tests_model_away_SOURCES = tests/model/away.c tests/lib/holders.c tests/lib/holders.h
tests_model_away_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
tests_model_away_LDADD = $(STORE_TEST_LIBS)
