# tmemd and its tools when the host has no more of what they ask for at start.
check_PROGRAMS += tests/start/fail_nth.so tests/start/start
TESTS += tests/start/start

tests_start_fail_nth_so_SOURCES = tests/start/fail_nth.c
tests_start_fail_nth_so_CFLAGS = $(AM_CFLAGS) -fPIC -fno-builtin
tests_start_fail_nth_so_LDFLAGS = -shared
tests_start_fail_nth_so_LDADD = -ldl
tests_start_start_SOURCES = tests/start/start.c $(PLAYER)
tests_start_start_LDADD = $(PLAYER_LIBS)
