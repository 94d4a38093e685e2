/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A real etcd of the test's own, on loopback, with its data in the test's scratch directory. It
 * ends with the test. What cannot be done ends the test with a message.
 */
#ifndef TMEMD_TESTS_MEMBERS_ETCD_H
#define TMEMD_TESTS_MEMBERS_ETCD_H

#include <stdbool.h>
#include <sys/types.h>

struct etcd_server {
	pid_t pid; /* 0: it does not run */
	bool tls;  /* and asks for a client's certificate */
	char name[16];
	char url[64]; /* of the clients */
	unsigned short peer_port;
};

/* NULL, or what is missing here. */
const char *etcd_missing(void);

/* Starts one with no data, and waits until it serves. */
void etcd_start(struct etcd_server *s, const char *name, bool tls);

/* As kill -9 does. */
void etcd_kill(struct etcd_server *s);

/* Starts it again, with its data or with none. */
void etcd_again(struct etcd_server *s, bool new_data);

/* Runs etcdctl with these arguments of a shell; its exit status. */
int etcdctl(const struct etcd_server *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A port that nobody listens at. */
unsigned short free_port(void);

/*
 * Certificates: the files AUTHORITY.pem, and NAME.pem with NAME.key signed by it, in the scratch
 * directory.
 */
void make_authority(const char *authority);
void make_certificate(const char *authority, const char *name);

#endif
