// SPDX-License-Identifier: GPL-2.0-or-later
#include "etcd.h"

#include "tests/lib/scratch.h"
#include "tests/model/check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define PATIENCE_S 60

__attribute__((format(printf, 1, 2))) static int shell(const char *fmt, ...)
{
	char command[4096];
	va_list ap;
	int n, status;

	va_start(ap, fmt);
	n = vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	CHECK(n > 0 && (size_t)n < sizeof(command), "%s", command);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *etcd_missing(void)
{
	if (shell("command -v etcd > /dev/null"))
		return "etcd (Debian package etcd-server) is not installed";
	if (shell("command -v etcdctl > /dev/null"))
		return "etcdctl (Debian package etcd-client) is not installed";
	if (shell("command -v certtool > /dev/null"))
		return "certtool (Debian package gnutls-bin) is not installed";
	return NULL;
}

unsigned short free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&address, len), "bind");
	CHECK(!getsockname(fd, (struct sockaddr *)&address, &len), "getsockname");
	close(fd);
	return ntohs(address.sin_port);
}

int etcdctl(const struct etcd_server *s, const char *fmt, ...)
{
	char args[2048], tls[512] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	if (s->tls)
		snprintf(tls, sizeof(tls), "--cacert %s --cert %s --key %s",
			 scratch_path("authority.pem"), scratch_path("host.pem"),
			 scratch_path("host.key"));
	return shell("ETCDCTL_API=3 etcdctl --endpoints %s %s %s > %s 2>&1", s->url, tls, args,
		     scratch_path("etcdctl.log"));
}

static void exec_etcd(const struct etcd_server *s)
{
	char data[160], peer[64], cluster[96];
	int log = open(scratch_path("etcd.log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
	const char *argv[] = {"etcd", "--name", s->name, "--data-dir", data, "--listen-client-urls",
			      s->url, "--advertise-client-urls", s->url, "--listen-peer-urls", peer,
			      "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
			      /* With s->tls: */
			      "--client-cert-auth", "--trusted-ca-file",
			      scratch_path("authority.pem"), "--cert-file",
			      scratch_path("server.pem"), "--key-file", scratch_path("server.key"),
			      NULL};

	snprintf(data, sizeof(data), "%s", scratch_path(s->name));
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%hu", s->peer_port);
	snprintf(cluster, sizeof(cluster), "%s=%s", s->name, peer);
	if (!s->tls)
		argv[15] = NULL;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, 1);
	dup2(log, 2);
	execvp(argv[0], (char *const *)(unsigned long)argv);
	_exit(127);
}

static void run(struct etcd_server *s)
{
	time_t end = time(NULL) + PATIENCE_S;

	s->pid = fork();
	CHECK(s->pid >= 0, "fork");
	if (!s->pid)
		exec_etcd(s);
	while (etcdctl(s, "--command-timeout 2s endpoint health")) {
		CHECK(!waitpid(s->pid, NULL, WNOHANG), "etcd ended, see %s/etcd.log",
		      scratch_path(""));
		CHECK(time(NULL) < end, "etcd does not serve");
		usleep(100000);
	}
}

void etcd_start(struct etcd_server *s, const char *name, bool tls)
{
	memset(s, 0, sizeof(*s));
	s->tls = tls;
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->url, sizeof(s->url), "%s://127.0.0.1:%hu", tls ? "https" : "http", free_port());
	s->peer_port = free_port();
	CHECK(!shell("rm -rf %s", scratch_path(s->name)), "rm"); /* of the case before */
	run(s);
}

void etcd_kill(struct etcd_server *s)
{
	if (!s->pid)
		return;
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

void etcd_again(struct etcd_server *s, bool new_data)
{
	if (new_data)
		CHECK(!shell("rm -r %s", scratch_path(s->name)), "rm");
	run(s);
}

/* ---- Certificates --------------------------------------------------------------------------- */

static void template(const char *text)
{
	FILE *f = fopen(scratch_path("template"), "we");

	CHECK(f, "template");
	fputs(text, f);
	fclose(f);
}

static void make_key(const char *name)
{
	CHECK(!shell("certtool --generate-privkey --key-type ecdsa --curve secp256r1 "
		     "--outfile %s/%s.key > %s 2>&1",
		     scratch_path(""), name, scratch_path("certtool.log")),
	      "certtool");
}

void make_authority(const char *authority)
{
	template("cn = authority\nca\ncert_signing_key\nexpiration_days = 2\n");
	make_key(authority);
	CHECK(!shell("cd %s && certtool --generate-self-signed --load-privkey %s.key "
		     "--template template --outfile %s.pem > certtool.log 2>&1",
		     scratch_path(""), authority, authority),
	      "certtool");
}

/* The gateway of etcd is a client of etcd, with the server's certificate: it has both purposes. */
void make_certificate(const char *authority, const char *name)
{
	template("cn = host\nip_address = 127.0.0.1\nsigning_key\ntls_www_server\n"
		 "tls_www_client\nexpiration_days = 2\n");
	make_key(name);
	CHECK(!shell("cd %s && certtool --generate-certificate --load-privkey %s.key "
		     "--load-ca-certificate %s.pem --load-ca-privkey %s.key "
		     "--template template --outfile %s.pem > certtool.log 2>&1",
		     scratch_path(""), name, authority, authority, name),
	      "certtool");
}
