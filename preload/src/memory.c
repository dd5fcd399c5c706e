/* Regions: RDS_GET_MR, RDS_FREE_MR, RDMA_MAP. */
#include <stdlib.h>

#include "pre.h"

enum { PAGE = 4096, MAX_PAGES = PRE_MAX_TRANSFER / PAGE };

/* forget takes a buffer out of the list and gives its memory back to the program, unless it is in
 * use, also by a call that has not submitted its message yet. mu is held. */
static bool forget(struct pre_buffer **at)
{
	struct pre_buffer *b = *at;
	if (b->pins || rds_unadopt(b->buffer) == -EBUSY)
		return false;
	*at = b->next;
	rds_buffer_free(b->buffer);
	free(b);
	return true;
}

/* find returns the buffer that has the range. One whose memory the program has unmapped or mapped
 * anew is of no more use. mu is held. */
static struct pre_buffer *find(struct pre_client *c, uint64_t at, uint64_t end)
{
	for (struct pre_buffer **b = &c->buffers; *b;) {
		bool has = (*b)->start <= at && end <= (*b)->end;
		if (has && rds_adopted((*b)->buffer))
			return *b;
		if (!has || !forget(b))
			b = &(*b)->next;
	}
	return NULL;
}

/* adopt makes the pages around the range a buffer. mu is held. */
static int adopt(struct pre_client *c, uint64_t at, uint64_t end, struct pre_buffer **buffer)
{
	struct pre_buffer *b = calloc(1, sizeof *b);
	if (!b)
		return -ENOMEM;
	b->start = at & ~(uint64_t)(PAGE - 1);
	b->end = (end + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	int err = rds_adopt(c->c, (void *)(uintptr_t)b->start, b->end - b->start, &b->buffer);
	if (err == -ENOBUFS || err == -EMFILE || err == -ENOMEM) { /* without what is not in use */
		for (struct pre_buffer **x = &c->buffers; *x;)
			if (!forget(x))
				x = &(*x)->next;
		err = rds_adopt(c->c, (void *)(uintptr_t)b->start, b->end - b->start, &b->buffer);
	}
	if (err) {
		free(b);
		return err;
	}
	b->next = c->buffers;
	c->buffers = *buffer = b;
	return 0;
}

int pre_segment(struct pre_sock *s, uint64_t at, uint64_t n, struct rds_segment *seg)
{
	struct pre_client *c = s->client;
	if (n == 0 || at + n < at)
		return -EFAULT;
	pthread_mutex_lock(&c->mu);
	struct pre_buffer *b = find(c, at, at + n);
	int err = b ? 0 : adopt(c, at, at + n, &b);
	if (!err) {
		*seg = (struct rds_segment){b->buffer, at - b->start, n};
		b->pins++;
	}
	pthread_mutex_unlock(&c->mu);
	return err == -EACCES || err == -EINVAL || err == -EBADF ? -EFAULT : err;
}

void pre_segments_done(struct pre_sock *s, const struct rds_segment *seg, size_t n)
{
	struct pre_client *c = s->client;
	pthread_mutex_lock(&c->mu);
	for (size_t i = 0; i < n; i++)
		for (struct pre_buffer *b = seg[i].buffer ? c->buffers : NULL; b; b = b->next)
			if (b->buffer == seg[i].buffer) {
				b->pins--;
				break;
			}
	pthread_mutex_unlock(&c->mu);
}

void pre_buffers_end(struct pre_client *c)
{
	for (struct pre_buffer *b; (b = c->buffers);) {
		c->buffers = b->next;
		rds_buffer_free(b->buffer);
		free(b);
	}
}

int pre_register(struct pre_sock *s, rds_socket *rs, const struct pre_mr_args *a, unsigned open, struct pre_mr **mr)
{
	struct rds_segment seg;
	uint64_t end = a->vec.addr + a->vec.bytes, pages = (end + PAGE - 1) / PAGE - a->vec.addr / PAGE, cookie;
	/* As in the kernel RDS_RDMA_READWRITE does not count: both, always. */
	unsigned rights = RDS_ALLOW_READ | RDS_ALLOW_WRITE | RDS_ALLOW_ATOMIC | open;
	*mr = NULL;
	if (!rs)
		return -ENOTCONN;
	if (end < a->vec.addr || end > UINT64_MAX - PAGE + 1 || a->vec.bytes == 0 || a->vec.bytes > UINT32_MAX)
		return -EINVAL;
	if (pages - 1 > MAX_PAGES)
		return -EMSGSIZE;
	int err = pre_segment(s, a->vec.addr, a->vec.bytes, &seg);
	if (err)
		return err;
	struct pre_mr *m = calloc(1, sizeof *m);
	err = -ENOMEM;
	if (m) {
		m->once = a->flags & PRE_USE_ONCE;
		err = rds_register(rs, seg.buffer, seg.off, seg.len, rights | (m->once ? RDS_USE_ONCE : 0), &m->region);
	}
	pre_segments_done(s, &seg, 1);
	if (err) {
		free(m);
		return err;
	}
	cookie = rds_region_cookie(m->region);
	m->key = (uint32_t)cookie;
	if (a->cookie_addr && (err = pre_store(a->cookie_addr, &cookie, sizeof cookie))) {
		pre_mr_drop(m); /* nobody was told of the key */
		return err;
	}
	*mr = m;
	return 0;
}

void pre_mr_add(struct pre_sock *s, struct pre_mr *mr)
{
	pthread_mutex_lock(&s->mu);
	mr->next = s->mrs;
	s->mrs = mr;
	pthread_mutex_unlock(&s->mu);
}

/* pre_mr_offer checks that a message to a host may carry the cookie of a region of this socket. A
 * region for one use is granted to one host. For another host it is EBUSY, or EINVAL once the
 * region was used. The lock keeps another thread from freeing the region. */
int pre_mr_offer(struct pre_sock *s, uint64_t cookie, const struct rds_addr *to)
{
	int err = 0;
	pthread_mutex_lock(&s->mu);
	struct pre_mr *m = s->mrs;
	while (m && m->key != (uint32_t)cookie)
		m = m->next;
	if (!m) {
		err = -EINVAL;
	} else if (m->once && !m->granted) {
		m->granted = true;
		m->to = *to;
	} else if (m->once && !pre_same_host(&m->to, to)) {
		err = rds_expose(m->region, to);
	}
	pthread_mutex_unlock(&s->mu);
	return err;
}

/* pre_mr_drop ends a region: nobody can use it when it returns. */
void pre_mr_drop(struct pre_mr *m)
{
	rds_release(m->region, -1);
	rds_region_free(m->region);
	free(m);
}

/* opens reports whether everybody may use the regions of RDS_GET_MR, as in the kernel. */
static bool opens(void)
{
	const char *strict = getenv("RDSD_PRELOAD_STRICT");
	return !strict || !*strict || !strcmp(strict, "0");
}

int pre_get_mr(struct pre_sock *s, const void *val, socklen_t len, bool for_dest)
{
	struct pre_mr_dest_args a;
	struct pre_addr to = {0};
	struct pre_mr *m;
	rds_socket *rs;
	if (len != (for_dest ? sizeof a : sizeof a.mr))
		return -EINVAL;
	int err = pre_load(for_dest ? (void *)&a : &a.mr, (uintptr_t)val, len);
	if (!err && for_dest)
		err = pre_addr_parse(&a.dest, sizeof a.dest, -EINVAL, &to);
	if (!err)
		err = pre_live(s, &rs);
	if (!err)
		err = pre_register(s, rs, &a.mr, !for_dest && opens() ? RDS_OPEN : 0, &m);
	if (err)
		return err;
	if (for_dest) {
		m->granted = true;
		m->to = to.at;
		if ((err = rds_expose(m->region, &to.at))) {
			pre_mr_drop(m);
			return err;
		}
	}
	pre_mr_add(s, m);
	return 0;
}

/* pre_free_mr is RDS_FREE_MR. Cookie 0 frees regions that are not used; there are none here. */
int pre_free_mr(struct pre_sock *s, const void *val, socklen_t len)
{
	struct pre_free_args a;
	rds_socket *rs;
	if (len != sizeof a)
		return -EINVAL;
	int err = pre_load(&a, (uintptr_t)val, sizeof a);
	if (!err)
		err = pre_live(s, &rs);
	if (err || a.cookie == 0)
		return err ? err : rs ? 0 : -EINVAL;
	pthread_mutex_lock(&s->mu);
	struct pre_mr **at = &s->mrs, *m;
	while (*at && (*at)->key != (uint32_t)a.cookie)
		at = &(*at)->next;
	if ((m = *at))
		*at = m->next;
	pthread_mutex_unlock(&s->mu);
	if (!m)
		return -EINVAL;
	/* A region for one use that was used is gone, which only a grant tells. */
	bool used = m->once && rds_expose(m->region, &s->bound.at) == -EINVAL;
	pre_mr_drop(m);
	return used ? -EINVAL : 0;
}
