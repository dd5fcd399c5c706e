/*
 * The control socket: requests and answers of docs/ipc.md. It has no thread of its own. Of
 * the threads that wait for answers one reads for all. Besides, whoever sleeps for events
 * watches the socket, so the daemon's end is noticed.
 */
#ifndef RDSI_CTL_H
#define RDSI_CTL_H

#include <pthread.h>
#include <rds/rds.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "proto.h"

/* The longest body of a request or an answer without text. */
#define RDSI_BODY 128

/* An rdsi_call is one request and its answer. */
struct rdsi_call {
	uint16_t type;  /* of the request */
	uint16_t want;  /* type of the answer */
	uint32_t len;   /* of body: the request, then the answer */
	uint8_t body[RDSI_BODY];
	uint8_t *big;   /* an answer longer than body, an Err among them, or NULL */
	int send_fd;    /* goes with the request; -1: none */
	int *fds;       /* that came with the answer; rdsi_call_end closes what is left */
	int nfds;
	/* late is called if the answer comes when nobody waits for it any more. err is as
	 * rdsi_call_run returns it. It may be NULL. */
	void (*late)(struct rdsi_call *call, int err);
	void *arg;

	uint32_t id;
	bool done, abandoned;
	int err;
	struct rdsi_link link;
};

struct rdsi_ctl {
	int fd; /* -1: closed, or in the child of a fork */
	int call_timeout_ms;
	pthread_mutex_t mu;
	pthread_cond_t change;
	struct rdsi_link calls; /* without an answer */
	uint32_t next_id;
	int users;    /* threads that use fd */
	bool reading; /* one of them reads */
	bool ended;   /* no more answers will come */
	bool closing;
	bool opened;  /* rds_open has returned */
	int end_err;  /* of calls after the end, before rds_open has returned */
	_Atomic int64_t looked; /* when the socket was looked at last */
	uint8_t *frame; /* IPC_MAX_FRAME bytes, of the thread that reads */
};

/* rdsi_dial connects to the daemon at path, or NULL: where rds_open looks for it (attach.c).
 * rdsi_ctl_dial connects to the daemon at path. */
int rdsi_dial(struct rdsi_ctl *ctl, const char *path, int64_t deadline);
/* rdsi_netns is the inode number of the calling thread's network namespace, 0 without /proc. rdsi_path
 * puts net in the place of each "%n" of path. -ENAMETOOLONG: it does not fit. */
uint64_t rdsi_netns(void);
int rdsi_path(char *to, size_t size, const char *path, uint64_t net);
int rdsi_ctl_dial(struct rdsi_ctl *ctl, const char *path, int64_t deadline);
void rdsi_ctl_init(struct rdsi_ctl *ctl);
/* rdsi_wait_fd waits until fd has events. It returns 0, -ETIMEDOUT or the error of poll. */
int rdsi_wait_fd(int fd, short events, int64_t deadline);
/* rdsi_ctl_read makes the caller the thread that reads. ctl.mu is held, and released while it
 * reads: what is there or, with wait, until something was handled or the deadline. */
int rdsi_ctl_read(rds_client *c, bool wait, int64_t deadline);
/* rdsi_ctl_end ends the session with err; open_err is that of calls before rds_open returns. */
void rdsi_ctl_end(rds_client *c, int open_err, int err, const char *text);
/* rdsi_ctl_shut ends the session, and waits until no thread uses the socket. */
void rdsi_ctl_shut(rds_client *c);
void rdsi_ctl_free(struct rdsi_ctl *ctl);

/* rdsi_call_new makes a request of type; NULL without memory. rdsi_call_end frees it. */
struct rdsi_call *rdsi_call_new(uint16_t type, uint16_t want);
void rdsi_call_end(struct rdsi_call *call);

/* rdsi_call_run sends the request and waits for the answer. It returns 0 if the answer has
 * the type wanted, the errno of an Err, or what ended the session. RDSI_LATE says that the
 * deadline has passed: the call belongs to the session then and must not be used. */
#define RDSI_LATE (-10100)
int rdsi_call_run(rds_client *c, struct rdsi_call *call, int64_t deadline);

/* rdsi_ctl_poll handles what the daemon has sent, without waiting. */
void rdsi_ctl_poll(rds_client *c);

/* rdsi_ctl_look does so at most every few milliseconds. */
void rdsi_ctl_look(rds_client *c);

#endif
