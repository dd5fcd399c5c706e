#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include "int.h"

/* A look at the socket costs a system call, so calls that find nothing make one only now and
 * then. */
#define LOOK_EVERY (10 * RDSI_MS)

void rdsi_ctl_init(struct rdsi_ctl *ctl)
{
	pthread_condattr_t attr;
	memset(ctl, 0, sizeof *ctl);
	ctl->fd = -1;
	pthread_mutex_init(&ctl->mu, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ctl->change, &attr);
	pthread_condattr_destroy(&attr);
	rdsi_list_init(&ctl->calls);
}

/* rdsi_wait_fd waits until fd has events. It returns 0 or -ETIMEDOUT. */
int rdsi_wait_fd(int fd, short events, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct timespec ts;
	for (;;) {
		int n = ppoll(&p, 1, rdsi_left(deadline, &ts), NULL);
		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int rdsi_ctl_dial(struct rdsi_ctl *ctl, const char *path, int64_t deadline)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	if (!*path || *path == '@' || strlen(path) >= sizeof sa.sun_path)
		return *path && *path != '@' ? -ENAMETOOLONG : -EINVAL;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* A full backlog fails with EAGAIN, and nothing tells when it has room. */
	while (connect(fd, (struct sockaddr *)&sa, sizeof sa)) {
		int err = -errno;
		if ((err == -EAGAIN || err == -EINTR) && rdsi_now() < deadline) {
			poll(NULL, 0, 5);
			continue;
		}
		close(fd);
		return err == -EAGAIN ? -ETIMEDOUT : err;
	}
	ctl->fd = fd;
	return 0;
}

/* rdsi_ctl_end ends the session with err and a reason. open_err is the error of calls before
 * rds_open has returned. ctl.mu is not held. */
void rdsi_ctl_end(rds_client *c, int open_err, int err, const char *text)
{
	struct rdsi_ctl *ctl = &c->ctl;
	rdsi_fail(c, err, "%s", text); /* ahead of ended, so that calls find the error */
	pthread_mutex_lock(&ctl->mu);
	if (!ctl->ended) {
		ctl->end_err = open_err;
		ctl->ended = true;
		shutdown(ctl->fd, SHUT_RDWR);
	}
	pthread_cond_broadcast(&ctl->change);
	pthread_mutex_unlock(&ctl->mu);
}

static void broke_protocol(rds_client *c, const char *what)
{
	char text[128];
	snprintf(text, sizeof text, "control protocol error: %s", what);
	rdsi_ctl_end(c, -EPROTO, -ECONNABORTED, text);
}

/* bad_answer checks the body of an answer of a type that has a fixed length. */
static bool bad_answer(uint16_t type, const uint8_t *body, size_t len)
{
	switch (type) {
	case IPC_HELLO_OK:
		return len < 4 || (rdsi_get32(body) == IPC_VERSION && len != 84) || len > RDSI_BODY;
	case IPC_BIND_OK:
		return len != 28 || body[26] > 1 || body[27] != 0;
	case IPC_ALLOC_OK:
	case IPC_REGISTER_OK:
		return len != 12;
	case IPC_GROW_SEND_OK:
	case IPC_IMPORT_OK:
		return len != 4;
	case IPC_ADDRS_OK:
		return len < 4 || rdsi_get32(body) > IPC_MAX_ADDRS || len != 4 + (size_t)20 * rdsi_get32(body);
	case IPC_OK:
		return len != 0;
	case IPC_ERR:
		return len < 4 || len > 4 + IPC_MAX_TEXT;
	default:
		return true;
	}
}

/* answer hands an answer to its call, which takes the descriptors. It returns what is wrong. */
static const char *answer(rds_client *c, uint16_t type, uint32_t id, const uint8_t *body, size_t len, int *fds, int nfds)
{
	struct rdsi_ctl *ctl = &c->ctl;
	struct rdsi_call *call = NULL;
	pthread_mutex_lock(&ctl->mu);
	for (struct rdsi_link *l = ctl->calls.next; l != &ctl->calls; l = l->next)
		if (RDSI_OF(l, struct rdsi_call, link)->id == id)
			call = RDSI_OF(l, struct rdsi_call, link);
	if (!call || (type != call->want && type != IPC_ERR)) {
		pthread_mutex_unlock(&ctl->mu);
		return call ? "an answer of another type" : "an answer to no request";
	}
	rdsi_list_del(&call->link);
	call->err = 0;
	if (type == IPC_ERR) {
		uint32_t e = rdsi_get32(body);
		call->err = e > 0 && e < 4096 ? -(int)e : -EIO;
		if ((call->big = malloc(len))) /* without memory the errno has to do */
			memcpy(call->big, body, len);
	} else if (len <= sizeof call->body) {
		memcpy(call->body, body, len);
	} else if ((call->big = malloc(len))) {
		memcpy(call->big, body, len);
	} else {
		call->err = -ENOMEM;
	}
	call->len = (uint32_t)len;
	call->fds = fds;
	call->nfds = nfds;
	call->done = true;
	bool abandoned = call->abandoned;
	pthread_cond_broadcast(&ctl->change);
	pthread_mutex_unlock(&ctl->mu);
	if (abandoned) {
		if (call->late)
			call->late(call, call->err);
		rdsi_call_end(call);
	}
	return NULL;
}

/* bad_fds reports whether an answer of type must not have n descriptors. */
static bool bad_fds(uint16_t type, int n)
{
	if (type == IPC_HELLO_OK)
		return false;
	return n > (type == IPC_ALLOC_OK || type == IPC_GROW_SEND_OK ? 1 : 0);
}

/* handle handles one frame. It returns false if the session has ended; fds are closed then. */
static bool handle(rds_client *c, const uint8_t *b, size_t n, bool cut, int *fds, int nfds)
{
	uint16_t type = n >= 8 ? rdsi_get16(b) : 0, flags = n >= 8 ? rdsi_get16(b + 2) : 0;
	uint32_t id = n >= 8 ? rdsi_get32(b + 4) : 0;
	const char *bad = NULL;
	char text[IPC_MAX_TEXT + 1];
	if (type == IPC_GOODBYE && flags <= 1 && nfds == 0 && n <= 8 + IPC_MAX_TEXT) {
		snprintf(text, sizeof text, "%.*s", (int)(n - 8), (const char *)b + 8);
		rdsi_ctl_end(c, flags ? -ECONNRESET : -ECONNABORTED, flags ? -ECONNRESET : -ECONNABORTED, text);
		return false;
	}
	if (n < 8 || flags || bad_answer(type, b + 8, n - 8))
		bad = "a frame that is not of this protocol";
	else if (bad_fds(type, nfds))
		bad = "descriptors with a frame that has none";
	else if (cut)
		bad = "descriptors were lost: this process is at its limit of open files";
	else if (type == IPC_ERR && id == 0) { /* the daemon refused before it read Hello */
		snprintf(text, sizeof text, "%.*s", (int)(n - 12), (const char *)b + 12);
		rdsi_refused(text, n - 12);
		uint32_t e = rdsi_get32(b + 8);
		rdsi_ctl_end(c, e > 0 && e < 4096 ? -(int)e : -EIO, -ECONNABORTED, text);
		return false;
	} else if (!(bad = answer(c, type, id, b + 8, n - 8, fds, nfds))) {
		return true;
	}
	for (int i = 0; i < nfds; i++)
		close(fds[i]);
	free(fds);
	broke_protocol(c, bad);
	return false;
}

/* take_fds collects the descriptors of all control messages. */
static int *take_fds(struct msghdr *h, int *count)
{
	int *fds = NULL;
	*count = 0;
	for (struct cmsghdr *m = CMSG_FIRSTHDR(h); m; m = CMSG_NXTHDR(h, m)) {
		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		int n = (int)((m->cmsg_len - CMSG_LEN(0)) / sizeof(int)), *more = realloc(fds, (size_t)(*count + n) * sizeof(int));
		for (int i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(m) + (size_t)i * sizeof fd, sizeof fd);
			if (more)
				more[*count + i] = fd;
			else
				close(fd);
		}
		if (more) {
			fds = more;
			*count += n;
		}
	}
	return fds;
}

/* receive handles one frame if there is one. It reports whether to go on. The caller is the
 * thread that reads. */
static bool receive(rds_client *c)
{
	struct rdsi_ctl *ctl = &c->ctl;
	union {
		struct cmsghdr align;
		char mem[CMSG_SPACE(IPC_MAX_FDS * sizeof(int))];
	} oob;
	ssize_t n = -1;
	struct msghdr h;
	struct iovec iov = {ctl->frame, IPC_MAX_FRAME};
	/* After ECONNRESET the frames that were sent before can still be read. */
	for (int tries = 0; tries < 3 && n < 0; tries++) {
		h = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1, .msg_control = oob.mem, .msg_controllen = sizeof oob.mem};
		n = recvmsg(ctl->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EAGAIN)
			return false;
	}
	if (n <= 0) {
		rdsi_ctl_end(c, -ECONNRESET, -ECONNRESET, "the RDS daemon is gone");
		return false;
	}
	int nfds, *fds = take_fds(&h, &nfds);
	if (h.msg_flags & MSG_TRUNC)
		n = 0;
	return handle(c, ctl->frame, (size_t)n, h.msg_flags & MSG_CTRUNC, fds, nfds);
}

/* rdsi_ctl_read makes the caller the thread that reads, unless there is one. ctl.mu is held, and
 * released while it reads: once without a wait, else until something was handled. */
int rdsi_ctl_read(rds_client *c, bool wait, int64_t deadline)
{
	struct rdsi_ctl *ctl = &c->ctl;
	int err = 0;
	ctl->reading = true;
	pthread_mutex_unlock(&ctl->mu);
	atomic_store(&ctl->looked, rdsi_now());
	if (!wait || !(err = rdsi_wait_fd(ctl->fd, POLLIN, deadline)))
		while (receive(c))
			;
	pthread_mutex_lock(&ctl->mu);
	ctl->reading = false;
	pthread_cond_broadcast(&ctl->change);
	return err;
}

void rdsi_ctl_poll(rds_client *c)
{
	struct rdsi_ctl *ctl = &c->ctl;
	pthread_mutex_lock(&ctl->mu);
	if (!ctl->reading && !ctl->ended && !ctl->closing) {
		ctl->users++;
		rdsi_ctl_read(c, false, 0);
		ctl->users--;
	}
	pthread_mutex_unlock(&ctl->mu);
}

void rdsi_ctl_look(rds_client *c)
{
	if (rdsi_now() - atomic_load(&c->ctl.looked) >= LOOK_EVERY)
		rdsi_ctl_poll(c);
}
