/* The session of the process with the daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../librds/src/ctl.h"
#include "../../librds/src/int.h"
#include "pre.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards now */
static struct pre_client *now; /* the sessions that new sockets get, one for each namespace; each has a reference */

enum { PATH = 256 };

uint64_t pre_net(void)
{
	const char *path = getenv("RDSD_SOCKET");
	return path && strstr(path, "%n") ? rdsi_netns() : 0;
}

const char *pre_path(char *to, size_t size, uint64_t net)
{
	const char *path = getenv("RDSD_SOCKET");
	return path && *path && !rdsi_path(to, size, path, net) ? to : NULL;
}

/* say tells once why sockets cannot be made. rdsctl run has said it already. */
static void say(int err, uint64_t net)
{
	static _Atomic bool said;
	char named[PATH], text[512];
	const char *path = pre_path(named, sizeof named, net);
	if (getenv("RDSD_PRELOAD_QUIET") || atomic_exchange(&said, true))
		return;
	int n = snprintf(text, sizeof text, "librdsd-preload: no RDS sockets: open %s: %s (start rdsd, or name its control socket in RDSD_SOCKET)\n",
		path ? path : "the daemon's control socket", err == -ENOENT ? "no daemon answers" : strerror(-err));
	if (n > 0 && write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) < 0)
		return; /* nobody to tell */
}

/* in_the_child forgets the parent's sessions. */
static void in_the_child(void)
{
	pthread_mutex_init(&mu, NULL);
	now = NULL;
}

/* lift hides the session's descriptors. */
static int lift(rds_client *c)
{
	int *fds[] = {&c->ctl.fd, &c->daemon_bell, &c->bell, &c->self};
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		int high = pre_lift(*fds[i]);
		if (high < 0)
			return high;
		*fds[i] = high;
	}
	return 0;
}

static int open_client(uint64_t net, struct pre_client **client)
{
	static bool registered;
	char named[PATH];
	/* A process has few RDS sockets, so it asks for less memory than the default. */
	const struct rds_options o = {.path = pre_path(named, sizeof named, net), .call_timeout_ms = 60000, .timeout_ms = 10000,
		.params = {.sub_entries = 1024, .event_entries = 2048, .max_msgs = 8192, .max_rx = 8192, .slots = 1024, .cells = 1024, .send_windows = 1}};
	struct pre_client *p = calloc(1, sizeof *p);
	if (!p)
		return -ENOMEM;
	int err = rds_open(&o, &p->c);
	if (!err && (err = lift(p->c)))
		rds_client_free(p->c);
	if (!err && !registered) {
		err = -pthread_atfork(NULL, NULL, in_the_child);
		registered = !err;
	}
	if (err) {
		free(p);
		return err;
	}
	p->refs = 1;
	p->net = net;
	pthread_mutex_init(&p->mu, NULL);
	*client = p;
	return 0;
}

/* errno_of is the error of socket(2) for one of rds_open. */
static int errno_of(int err)
{
	switch (err) {
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -EACCES:
	case -ENOBUFS:
		return err;
	case -EUSERS:
		return -ENOBUFS;
	default:
		return -EAFNOSUPPORT;
	}
}

/* drop_ended drops the sessions whose daemons have ended. Their sockets keep them. mu is held. */
static void drop_ended(void)
{
	for (struct pre_client **at = &now, *p; (p = *at);) {
		if (!rds_client_error(p->c, NULL, 0)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		pre_client_put(p);
	}
}

int pre_client_get(uint64_t net, struct pre_client **client)
{
	struct pre_client *p;
	int err = 0;
	pthread_mutex_lock(&mu);
	drop_ended();
	for (p = now; p && p->net != net;)
		p = p->next;
	if (!p && !(err = open_client(net, &p))) {
		p->next = now;
		now = p;
	}
	if (err && err != -EMFILE && err != -ENFILE && err != -ENOMEM)
		say(err, net);
	if (!err) {
		atomic_fetch_add(&p->refs, 1);
		*client = p;
	}
	pthread_mutex_unlock(&mu);
	return err ? errno_of(err) : 0;
}

void pre_client_put(struct pre_client *p)
{
	if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	rds_client_close(p->c);
	pre_buffers_end(p);
	rds_client_free(p->c);
	pthread_mutex_destroy(&p->mu);
	free(p);
}
