/* The life of a socket, and its names. */
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../librds/src/pollfd.h"
#include "fault.h"
#include "pre.h"

enum { DEFAULT_BUF = 212992, TRANS_LOOP = 3 };

/* buffers gives s the host's default sizes, net.core.wmem_default and rmem_default: those of a socket that the kernel has
 * just made. */
static void buffers(struct pre_sock *s, int fresh)
{
	socklen_t n = sizeof s->sndbuf;
	if (!real_getsockopt(fresh, SOL_SOCKET, SO_SNDBUF, &s->sndbuf, &n))
		atomic_store(&s->sndlimit, s->sndbuf / 2);
	real_getsockopt(fresh, SOL_SOCKET, SO_RCVBUF, &s->rcvbuf, &n);
}

int pre_ends(struct pre_sock *s, int flags)
{
	int pair[2], least = 1, err;
	if (real_socketpair(AF_UNIX, SOCK_SEQPACKET | flags, 0, pair))
		return -errno;
	buffers(s, pair[0]);
	real_setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
	pre_mark(pair[1], s->net);
	if ((s->end = pre_lift(pair[1])) < 0) {
		err = s->end;
		real_close(pair[0]);
		real_close(pair[1]);
		return err;
	}
	int own = real_dup(pair[0]);
	s->own = own < 0 ? -errno : pre_lift(own);
	if (s->own < 0) {
		err = s->own;
		if (own >= 0)
			real_close(own);
		real_close(pair[0]);
		return err; /* pre_release closes end */
	}
	return pair[0];
}

struct pre_sock *pre_sock_fresh(void)
{
	struct pre_sock *s = pre_sock_new();
	pre_catch_faults();
	if (s) {
		s->sndbuf = s->rcvbuf = DEFAULT_BUF;
		atomic_store(&s->sndlimit, DEFAULT_BUF / 2);
		s->transport = -1;
	}
	return s;
}

int pre_socket(int type, int protocol)
{
	struct pre_client *client;
	int flags = type & (SOCK_NONBLOCK | SOCK_CLOEXEC);
	if ((type & ~flags) != SOCK_SEQPACKET || protocol != 0)
		return -ESOCKTNOSUPPORT;
	struct pre_sock *s = pre_sock_fresh();
	if (!s)
		return -ENOMEM;
	atomic_store(&s->nonblock, flags & SOCK_NONBLOCK);
	s->net = pre_net();
	int fd = pre_client_get(s->net, &client);
	if (!fd) {
		s->client = client;
		fd = pre_ends(s, flags);
	}
	int err = fd < 0 ? fd : pre_set(fd, s);
	if (fd >= 0 && err)
		real_close(fd);
	pre_put(s); /* the descriptor has a reference */
	return err ? err : fd;
}

/* pre_live stores the bound socket, NULL before bind. -ESTALE: it is the parent's. */
int pre_live(struct pre_sock *s, rds_socket **rs)
{
	*rs = atomic_load(&s->rs);
	return atomic_load(&s->lost) ? -ESTALE : 0;
}

/* own_client gives a socket that was inherited before its bind a session of this process. */
static int own_client(struct pre_sock *s)
{
	struct pre_client *c;
	if (s->client && rds_client_error(s->client->c, NULL, 0) == 0)
		return 0;
	int err = pre_client_get(s->net, &c);
	if (err)
		return err;
	if (s->client && rds_client_error(s->client->c, NULL, 0) != -ESTALE)
		pre_client_put(s->client);
	s->client = c;
	return 0;
}

/* take makes rs the bound socket of s. mu is held. */
static int take(struct pre_sock *s, rds_socket *rs, struct pre_addr *a)
{
	int err = pre_apply_options(s, rs);
	if (err || (err = pre_claim(s))) {
		rds_socket_free(rs); /* nobody has seen it */
		return err;
	}
	bool loop = pre_v4(&a->at) ? a->at.ip[12] == 127 : a->at.ip[15] == 1 && memcmp(a->at.ip, (uint8_t[15]){0}, 15) == 0;
	if (s->transport < 0)
		s->transport = loop ? TRANS_LOOP : (int)PRE_TRANS_IB;
	struct rds_addr local;
	rds_local(rs, &local);
	a->at.port = local.port;
	s->bound = *a;
	atomic_store(&s->rs, rs);
	return 0;
}

int pre_bind(struct pre_sock *s, const void *addr, socklen_t len)
{
	struct pre_addr a;
	rds_socket *rs;
	int err = pre_addr_parse(addr, len, -EINVAL, &a);
	if (err || !pre_unicast(&a.at) || pre_needs_scope(&a))
		return -EINVAL;
	pthread_mutex_lock(&s->mu);
	if (atomic_load(&s->rs) || atomic_load(&s->lost) || (s->peer.scope && s->peer.scope != a.scope))
		err = -EINVAL;
	if (!err && !(err = own_client(s)) && (err = rds_bind(s->client->c, &a.at, &rs)) == -EADDRNOTAVAIL && s->transport >= 0)
		err = -ENOPROTOOPT;
	if (!err)
		err = take(s, rs, &a);
	pthread_mutex_unlock(&s->mu);
	if (!err && atomic_load(&s->watched)) {
		atomic_store(&s->watched, false);
		pre_watch(s);
	}
	return err;
}

int pre_connect(struct pre_sock *s, const void *addr, socklen_t len)
{
	struct pre_addr a;
	int err = pre_addr_parse(addr, len, -EAFNOSUPPORT, &a);
	if (err)
		return err;
	if (!pre_unicast(&a.at)) {
		static const uint8_t any[4];
		if (a.family == AF_INET6)
			return -EPROTOTYPE;
		return memcmp(a.at.ip + 12, any, sizeof any) ? -EINVAL : -EDESTADDRREQ;
	}
	pthread_mutex_lock(&s->mu);
	if (pre_needs_scope(&a) || (atomic_load(&s->rs) && s->bound.scope && a.scope && a.scope != s->bound.scope))
		err = -EINVAL;
	else
		s->peer = a;
	pthread_mutex_unlock(&s->mu);
	return err;
}

int pre_name(struct pre_sock *s, bool peer, struct sockaddr_storage *name, socklen_t *len)
{
	pthread_mutex_lock(&s->mu);
	struct pre_addr a = peer || !atomic_load(&s->rs) ? s->peer : s->bound;
	bool bound = atomic_load(&s->rs);
	pthread_mutex_unlock(&s->mu);
	if (peer && !a.family)
		return -ENOTCONN;
	memset(name, 0, sizeof *name);
	*len = sizeof *name;
	if (peer || bound) {
		pre_addr_put(&a.at, a.scope, name, len);
		return 0;
	}
	/* All zero, of the connected family. */
	bool six = a.family && !pre_v4(&a.at);
	name->ss_family = !a.family ? AF_UNSPEC : six ? AF_INET6 : AF_INET;
	*len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	return 0;
}

/* pre_release is close(2) of the last descriptor. It does not linger. */
void pre_release(struct pre_sock *s)
{
	rds_socket *rs = atomic_load(&s->rs);
	bool lost = atomic_load(&s->lost);
	if (rs && !lost)
		rds_close(rs);
	while (s->mrs) {
		struct pre_mr *m = s->mrs;
		s->mrs = m->next;
		pre_mr_drop(m);
	}
	rds_socket_free(rs);
	if (s->client && !lost && rds_client_error(s->client->c, NULL, 0) != -ESTALE)
		pre_client_put(s->client);
	if (s->own >= 0)
		pre_close_hidden(s->own);
	if (s->end >= 0)
		pre_close_hidden(s->end);
	if (s->travelled >= 0)
		pre_close_hidden(s->travelled);
	free(s->ops);
	free(s->congested);
	free(s->armed);
	pthread_mutex_destroy(&s->mu);
	pthread_mutex_destroy(&s->watching);
}

/* pre_restarts: the kernel restarts a call without a time-out if the handler that ran was
 * installed with SA_RESTART. Which handler ran is not known, so every one must have it. */
bool pre_restarts(void)
{
	struct sigaction a;
	bool any = false;
	for (int sig = 1; sig < NSIG; sig++) {
		/* Faults of the thread itself do not interrupt a wait. */
		if (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP || sig == SIGABRT)
			continue;
		if (sigaction(sig, NULL, &a) || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)
			continue;
		if (!(a.sa_flags & SA_RESTART))
			return false;
		any = true;
	}
	return any;
}
