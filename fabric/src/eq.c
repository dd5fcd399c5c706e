/* eq.c - event queues. They have a lock of their own, since they belong to the fabric. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "fi.h"

#define EQ(x) ((struct rfi_eq *)(void *)(x))

struct event {
	struct link link;
	uint32_t kind;
	int err;
	size_t len;
	char data[];
};

static ssize_t eq_put(struct rfi_eq *eq, uint32_t kind, const void *data, size_t len, int err)
{
	struct event *e = malloc(sizeof *e + len);
	uint64_t one = 1;
	if (!e)
		return -FI_ENOMEM;
	e->kind = kind;
	e->err = err;
	e->len = len;
	memcpy(e->data, data, len);
	pthread_mutex_lock(&eq->lock);
	list_add(err ? &eq->errors : &eq->events, &e->link);
	if (eq->fd >= 0 && write(eq->fd, &one, sizeof one) < 0)
		WARN(FI_LOG_EQ, "eventfd: the waiter is not woken\n");
	pthread_cond_broadcast(&eq->changed);
	pthread_mutex_unlock(&eq->lock);
	return (ssize_t)len;
}

void rfi_eq_add(struct rfi_eq *eq, uint32_t kind, struct fid *fid, void *context, uint64_t data, int err)
{
	struct fi_eq_entry entry = {.fid = fid, .context = context, .data = data};
	eq_put(eq, kind, &entry, sizeof entry, err);
}

bool rfi_eq_ready(struct rfi_eq *eq)
{
	pthread_mutex_lock(&eq->lock);
	bool ready = !list_empty(&eq->events) || !list_empty(&eq->errors);
	pthread_mutex_unlock(&eq->lock);
	return ready;
}

/* take is fi_eq_read with the lock held. */
static ssize_t take(struct rfi_eq *eq, uint32_t *kind, void *buf, size_t len, uint64_t flags)
{
	uint64_t n;
	if (!list_empty(&eq->errors))
		return -FI_EAVAIL;
	if (list_empty(&eq->events))
		return -FI_EAGAIN;
	struct event *e = LIST_ENTRY(eq->events.next, struct event, link);
	if (len < e->len)
		return -FI_ETOOSMALL;
	*kind = e->kind;
	memcpy(buf, e->data, e->len);
	ssize_t got = (ssize_t)e->len;
	if (!(flags & FI_PEEK)) {
		list_del(&e->link);
		free(e);
		if (eq->fd >= 0 && list_empty(&eq->events) && read(eq->fd, &n, sizeof n) < 0)
			n = 0; /* it had not been written to */
	}
	return got;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *kind, void *buf, size_t len, uint64_t flags)
{
	struct rfi_eq *eq = EQ(fid);
	pthread_mutex_lock(&eq->lock);
	ssize_t got = take(eq, kind, buf, len, flags);
	pthread_mutex_unlock(&eq->lock);
	return got;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *kind, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct rfi_eq *eq = EQ(fid);
	struct timespec until;
	int64_t end = rfi_now_ms() + (timeout < 0 ? 0 : timeout);
	until.tv_sec = end / 1000;
	until.tv_nsec = end % 1000 * 1000000;
	pthread_mutex_lock(&eq->lock);
	ssize_t got = take(eq, kind, buf, len, flags);
	while (got == -FI_EAGAIN) {
		if (timeout < 0)
			pthread_cond_wait(&eq->changed, &eq->lock);
		else if (pthread_cond_timedwait(&eq->changed, &eq->lock, &until))
			break;
		got = take(eq, kind, buf, len, flags);
	}
	pthread_mutex_unlock(&eq->lock);
	return got;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
	struct rfi_eq *eq = EQ(fid);
	struct fi_eq_entry entry = {0};
	ssize_t got = -FI_EAGAIN;
	pthread_mutex_lock(&eq->lock);
	if (!list_empty(&eq->errors)) {
		struct event *e = LIST_ENTRY(eq->errors.next, struct event, link);
		memcpy(&entry, e->data, e->len < sizeof entry ? e->len : sizeof entry);
		buf->fid = entry.fid;
		buf->context = entry.context;
		buf->data = entry.data;
		buf->err = e->err;
		buf->prov_errno = -e->err;
		buf->err_data_size = 0;
		got = sizeof *buf;
		if (!(flags & FI_PEEK)) {
			list_del(&e->link);
			free(e);
		}
	}
	pthread_mutex_unlock(&eq->lock);
	return got;
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t kind, const void *buf, size_t len, uint64_t flags)
{
	return flags ? -FI_EBADFLAGS : eq_put(EQ(fid), kind, buf, len, 0);
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno, const void *data, char *buf, size_t len)
{
	const char *text = fi_strerror(prov_errno < 0 ? -prov_errno : prov_errno);
	if (buf && len)
		strncpy(buf, text, len - 1)[len - 1] = 0;
	return text;
}

static void drop_all(struct link *head)
{
	LIST_EACH(l, after, head)
		free(LIST_ENTRY(l, struct event, link));
}

static int eq_close(struct fid *fid)
{
	struct rfi_eq *eq = EQ(fid);
	drop_all(&eq->events);
	drop_all(&eq->errors);
	if (eq->fd >= 0)
		close(eq->fd);
	pthread_mutex_destroy(&eq->lock);
	pthread_cond_destroy(&eq->changed);
	free(eq);
	return 0;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	if (command != FI_GETWAIT)
		return -FI_ENOSYS;
	if (EQ(fid)->fd < 0)
		return -FI_ENODATA;
	*(int *)arg = EQ(fid)->fd;
	return 0;
}

static struct fi_ops eq_fid_ops = {
	.size = sizeof(struct fi_ops), .close = eq_close, .bind = rfi_no_bind, .control = eq_control, .ops_open = rfi_no_ops_open,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq), .read = eq_read, .readerr = eq_readerr, .write = eq_write, .sread = eq_sread, .strerror = eq_strerror,
};

int rfi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	enum fi_wait_obj wait = attr ? attr->wait_obj : FI_WAIT_NONE;
	pthread_condattr_t monotonic;
	if (wait != FI_WAIT_NONE && wait != FI_WAIT_UNSPEC && wait != FI_WAIT_FD && wait != FI_WAIT_YIELD)
		return -FI_ENOSYS;
	struct rfi_eq *eq = calloc(1, sizeof *eq);
	if (!eq)
		return -FI_ENOMEM;
	eq->fd = wait == FI_WAIT_FD ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	if (wait == FI_WAIT_FD && eq->fd < 0) {
		free(eq);
		return -FI_EMFILE;
	}
	eq->fid.fid = (struct fid){.fclass = FI_CLASS_EQ, .context = context, .ops = &eq_fid_ops};
	eq->fid.ops = &eq_ops;
	list_init(&eq->events);
	list_init(&eq->errors);
	pthread_mutex_init(&eq->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&eq->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	*out = &eq->fid;
	return 0;
}
