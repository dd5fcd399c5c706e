#include "ask.h"

#include <stdlib.h>
#include <unistd.h>

#include "../../librds/src/int.h"
#include "pre.h"

enum { PATIENCE_MS = 5000, HEAD = 8, LAST = 1 };

static uint8_t *head(uint8_t *b, uint16_t type, uint32_t id)
{
	return rdsi_put32(rdsi_put16(rdsi_put16(b, type), 0), id);
}

static int send_all(int fd, const void *b, size_t n, int64_t deadline)
{
	for (;;) {
		if (real_send(fd, b, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n)
			return 0;
		int err = errno == EAGAIN ? rdsi_wait_fd(fd, POLLOUT, deadline) : -errno;
		if (err)
			return err;
	}
}

/* receive reads one frame of at most IPC_MAX_FRAME bytes. */
static ssize_t receive(int fd, uint8_t *b, int64_t deadline)
{
	for (;;) {
		ssize_t n = real_recv(fd, b, IPC_MAX_FRAME, MSG_DONTWAIT);
		if (n >= 0)
			return n ? n : -ECONNREFUSED;
		int err = errno == EAGAIN ? rdsi_wait_fd(fd, POLLIN, deadline) : -errno;
		if (err)
			return err;
	}
}

/* expect reads a frame of a type. An Err is -EACCES. */
static ssize_t expect(int fd, uint8_t *b, uint16_t type, int64_t deadline)
{
	ssize_t n = receive(fd, b, deadline);
	if (n < 0)
		return n;
	if (n < HEAD)
		return -EPROTO;
	uint16_t got = rdsi_get16(b);
	return got == IPC_ERR ? -EACCES : got != type ? -EPROTO : n;
}

static int hello(int fd, uint8_t *b, int64_t deadline)
{
	uint8_t *p = head(b, IPC_HELLO, 1);
	p = rdsi_put32(p, IPC_MAGIC);
	p = rdsi_put32(p, IPC_VERSION);
	p = rdsi_put64(p, IPC_FEATURES);
	p = rdsi_put32(p, IPC_ROLE_CTL);
	memset(p, 0, IPC_MAX_NAME + sizeof(struct shm_params));
	memcpy(p, "preload", 7);
	p += IPC_MAX_NAME + sizeof(struct shm_params);
	int err = send_all(fd, b, (size_t)(p - b), deadline);
	if (err)
		return err;
	ssize_t n = expect(fd, b, IPC_HELLO_OK, deadline);
	return n < 0 ? (int)n : 0;
}

/* collect reads the parts of the answer. */
static int collect(int fd, uint8_t *b, char **answer, size_t *len, int64_t deadline)
{
	*answer = NULL;
	*len = 0;
	for (;;) {
		ssize_t n = expect(fd, b, IPC_CTL_PART, deadline);
		size_t part = n < HEAD ? 0 : (size_t)n - HEAD;
		char *more = n < 0 || *len + part > PRE_CTL_MAX ? NULL : realloc(*answer, *len + part + 1);
		if (!more) {
			free(*answer);
			return n < 0 ? (int)n : -ENOMEM;
		}
		memcpy(more + *len, b + HEAD, part);
		*answer = more;
		*len += part;
		if (rdsi_get16(b + 2) & LAST)
			return 0;
	}
}

int pre_ask(const char *path, const char *request, char **answer, size_t *len)
{
	struct rdsi_ctl ctl = {.fd = -1};
	int64_t deadline = rdsi_deadline(PATIENCE_MS);
	size_t n = strlen(request);
	uint8_t *b = malloc(IPC_MAX_FRAME);
	int err = b ? rdsi_dial(&ctl, path, deadline) : -ENOMEM;
	if (!err)
		err = hello(ctl.fd, b, deadline);
	if (!err) {
		memcpy(head(b, IPC_CTL, 2), request, n);
		err = send_all(ctl.fd, b, HEAD + n, deadline);
	}
	if (!err)
		err = collect(ctl.fd, b, answer, len, deadline);
	if (ctl.fd >= 0)
		real_close(ctl.fd);
	free(b);
	return err == -ENOENT ? -ECONNREFUSED : err;
}
