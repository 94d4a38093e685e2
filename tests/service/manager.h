/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of a service manager that keeps file descriptors for tmemd, see sd_notify(3). */
#ifndef TMEMD_TESTS_MANAGER_H
#define TMEMD_TESTS_MANAGER_H

/* Listens on the socket `path` and keeps what is sent, in a thread of its own. */
void manager_open(const char *path);

/* How many file descriptors are kept. */
int manager_kept(void);

/* It keeps no more than that many; at first, enough. */
void manager_limit(int max);

/* A duplicate of what is kept under that name; -1: nothing is. */
int manager_get(const char *name);

/* Forgets what is kept under that name; keeps this (and closes it in the end) instead. */
void manager_forget(const char *name);
void manager_put(const char *name, int fd);

/* In the child, before exec: NOTIFY_SOCKET and the kept file descriptors. */
void manager_hand_over(void);

#endif
