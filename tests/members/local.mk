# Membership against a real etcd.
if HAVE_LIBCURL
members_tests = tests/members/members
check_PROGRAMS += $(members_tests)
TESTS += $(members_tests)
THREADED_TESTS += $(members_tests)
tests_members_members_SOURCES = tests/members/members.c tests/members/etcd.c tests/members/etcd.h
tests_members_members_LDADD = libtest.a $(MEMBERS_LIBS)
endif
