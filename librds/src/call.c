/* Requests to the daemon and the wait for their answers. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "int.h"

/* A frame is a request as it is sent. */
struct frame {
	uint8_t b[8 + RDSI_BODY];
	size_t len;
	int fd; /* that goes with it; -1: none */
};

/* encode makes the frame of a request. ctl.mu is held: once the request is among those without an
 * answer, a daemon that answers before it was asked changes the call. */
static void encode(const struct rdsi_call *call, struct frame *f)
{
	uint8_t *p = f->b;
	p = rdsi_put16(p, call->type);
	p = rdsi_put16(p, 0);
	p = rdsi_put32(p, call->id);
	memcpy(p, call->body, call->len);
	f->len = 8 + (size_t)call->len;
	f->fd = call->send_fd;
}

/* send_frame sends the request. */
static int send_frame(struct rdsi_ctl *ctl, struct frame *f)
{
	struct iovec iov = {f->b, f->len};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	union {
		struct cmsghdr align;
		char mem[CMSG_SPACE(sizeof(int))];
	} oob = {0};
	if (f->fd >= 0) {
		h.msg_control = oob.mem;
		h.msg_controllen = sizeof oob.mem;
		struct cmsghdr *m = CMSG_FIRSTHDR(&h);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &f->fd, sizeof(int));
	}
	for (;;) {
		if (sendmsg(ctl->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		if (rdsi_wait_fd(ctl->fd, POLLOUT, rdsi_deadline(10000)))
			return -ETIMEDOUT;
	}
}

/* enter_call gives the request an id. ctl.mu is held. */
static void enter_call(struct rdsi_ctl *ctl, struct rdsi_call *call)
{
	do {
		ctl->next_id++;
		call->id = ctl->next_id;
		for (struct rdsi_link *l = ctl->calls.next; l != &ctl->calls; l = l->next)
			if (RDSI_OF(l, struct rdsi_call, link)->id == call->id)
				call->id = 0;
	} while (!call->id);
	rdsi_list_add(&ctl->calls, &call->link);
	ctl->users++;
}

/* await waits for the answer. ctl.mu is held. */
static int await(rds_client *c, struct rdsi_call *call, int64_t deadline)
{
	struct rdsi_ctl *ctl = &c->ctl;
	int err = 0;
	while (!call->done && !ctl->ended && err != -ETIMEDOUT) {
		if (!ctl->reading) {
			err = rdsi_ctl_read(c, true, deadline);
		} else if (deadline == RDSI_NEVER) {
			pthread_cond_wait(&ctl->change, &ctl->mu);
		} else {
			struct timespec ts = {deadline / 1000000000, deadline % 1000000000};
			err = -pthread_cond_timedwait(&ctl->change, &ctl->mu, &ts);
		}
	}
	return call->done ? 0 : ctl->ended ? -EPIPE : err;
}

/* over is the error of a call without an answer. */
static int over(rds_client *c)
{
	struct rdsi_ctl *ctl = &c->ctl;
	pthread_mutex_lock(&ctl->mu);
	int err = ctl->opened || !ctl->end_err ? rdsi_client_err(c) : ctl->end_err;
	pthread_mutex_unlock(&ctl->mu);
	return err ? err : -EBADF;
}

int rdsi_call_run(rds_client *c, struct rdsi_call *call, int64_t deadline)
{
	struct rdsi_ctl *ctl = &c->ctl;
	struct frame f;
	rdsi_refused("", 0);
	bool limited = deadline == RDSI_NEVER && ctl->call_timeout_ms > 0;
	pthread_mutex_lock(&ctl->mu);
	if (ctl->ended || ctl->closing) {
		pthread_mutex_unlock(&ctl->mu);
		return over(c);
	}
	enter_call(ctl, call);
	encode(call, &f);
	pthread_mutex_unlock(&ctl->mu);
	int sent = send_frame(ctl, &f);
	pthread_mutex_lock(&ctl->mu);
	/* If the daemon has closed, its reason is still to be read. */
	int err = await(c, call, sent == -ETIMEDOUT ? rdsi_now() : limited ? rdsi_deadline(ctl->call_timeout_ms) : deadline);
	bool late = err == -ETIMEDOUT && !limited && !sent;
	if (late)
		call->abandoned = true;
	else
		rdsi_list_del(&call->link);
	ctl->users--;
	pthread_cond_broadcast(&ctl->change);
	pthread_mutex_unlock(&ctl->mu);
	if (!late && !err && call->err && call->big)
		rdsi_refused((const char *)call->big + 4, call->len - 4); /* the errno lies ahead */
	if (late || !err)
		return late ? RDSI_LATE : call->err;
	if (err == -ETIMEDOUT)
		rdsi_ctl_end(c, -ETIMEDOUT, -ECONNABORTED, "the daemon does not answer");
	return over(c);
}

struct rdsi_call *rdsi_call_new(uint16_t type, uint16_t want)
{
	struct rdsi_call *call = calloc(1, sizeof *call);
	if (call) {
		call->type = type;
		call->want = want;
		call->send_fd = -1;
		rdsi_list_init(&call->link);
	}
	return call;
}

void rdsi_call_end(struct rdsi_call *call)
{
	if (!call)
		return;
	for (int i = 0; i < call->nfds; i++)
		if (call->fds[i] >= 0)
			close(call->fds[i]);
	free(call->fds);
	free(call->big);
	free(call);
}

void rdsi_ctl_shut(rds_client *c)
{
	struct rdsi_ctl *ctl = &c->ctl;
	pthread_mutex_lock(&ctl->mu);
	ctl->closing = true;
	if (ctl->fd >= 0)
		shutdown(ctl->fd, SHUT_RDWR);
	pthread_cond_broadcast(&ctl->change);
	while (ctl->users > 0)
		pthread_cond_wait(&ctl->change, &ctl->mu);
	if (ctl->fd >= 0)
		close(ctl->fd);
	ctl->fd = -1;
	ctl->ended = true;
	pthread_mutex_unlock(&ctl->mu);
}

void rdsi_ctl_free(struct rdsi_ctl *ctl)
{
	for (struct rdsi_link *l = ctl->calls.next, *next; l != &ctl->calls; l = next) {
		struct rdsi_call *call = RDSI_OF(l, struct rdsi_call, link); /* nobody waits for it */
		next = l->next;
		if (call->late)
			call->late(call, -EBADF);
		rdsi_call_end(call);
	}
	pthread_mutex_destroy(&ctl->mu);
	pthread_cond_destroy(&ctl->change);
	free(ctl->frame);
}
