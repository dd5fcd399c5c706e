/* Regions: parts of buffers that peers may use. */
#include <stdlib.h>

#include "buffer.h"
#include "region.h"
#include "tx.h"

_Static_assert(RDS_ALLOW_READ == ABI_RIGHT_READ && RDS_ALLOW_WRITE == ABI_RIGHT_WRITE && RDS_ALLOW_ATOMIC == ABI_RIGHT_ATOMIC, "rights");
_Static_assert(RDS_USE_ONCE == ABI_USE_ONCE && RDS_OPEN == ABI_OPEN, "rights");

enum {
	ANY_RIGHT = RDS_ALLOW_READ | RDS_ALLOW_WRITE | RDS_ALLOW_ATOMIC,
	ALL_RIGHTS = ANY_RIGHT | RDS_USE_ONCE | RDS_OPEN,
};

int rdsi_overtaken(rds_socket *s, int err)
{
	return atomic_load(&s->closed) && (err == -EBADF || err == -EINVAL) ? -EBADF : err;
}

static uint64_t hash_key(uint64_t cookie) { return rdsi_mix((uint32_t)cookie, 0); }

/* find finds the live region of a cookie's key. The offset in the cookie is not checked. */
static rds_region *find(rds_client *c, uint64_t cookie)
{
	for (struct rdsi_node *n = rdsi_hash_first(&c->regions, hash_key(cookie)); n; n = rdsi_hash_next(n)) {
		rds_region *r = RDSI_OF(n, rds_region, node);
		if ((uint32_t)r->cookie == (uint32_t)cookie)
			return r;
	}
	return NULL;
}

bool rdsi_region_known(rds_client *c, uint64_t cookie)
{
	pthread_mutex_lock(&c->regions_mu);
	bool known = find(c, cookie) != NULL;
	pthread_mutex_unlock(&c->regions_mu);
	return known;
}

/* end ends r, which is live. regions_mu is held. */
static void end(rds_client *c, rds_region *r)
{
	rdsi_hash_del(&c->regions, &r->node);
	r->live = false;
	if (r->freed)
		free(r);
}

void rdsi_regions_end(rds_socket *s)
{
	rds_client *c = s->c;
	pthread_mutex_lock(&c->regions_mu);
	for (uint32_t i = 0; i < c->regions.size; i++) {
		for (struct rdsi_node *n = c->regions.heads[i], *next; n; n = next) {
			next = n->next;
			rds_region *r = RDSI_OF(n, rds_region, node);
			if (r->s == s)
				end(c, r);
		}
	}
	pthread_mutex_unlock(&c->regions_mu);
}

/* ask_register asks the daemon for a region. */
static int ask_register(rds_region *r, rds_buffer *b, size_t off, size_t len, unsigned rights)
{
	struct rdsi_call *call = rdsi_call_new(IPC_REGISTER, IPC_REGISTER_OK);
	if (!call)
		return -ENOMEM;
	uint8_t *p = rdsi_put32(rdsi_put32(call->body, r->s->handle), b->id);
	p = rdsi_put32(rdsi_put64(rdsi_put64(p, b->shift + off), len), rights);
	call->len = (uint32_t)(p - call->body);
	int err = rdsi_overtaken(r->s, rdsi_call_run(r->s->c, call, RDSI_NEVER));
	if (!err) {
		r->id = rdsi_get32(call->body);
		r->cookie = rdsi_get64(call->body + 4);
	}
	rdsi_call_end(call);
	return err;
}

/* add makes r live, unless its socket has been closed. */
static int add(rds_region *r)
{
	rds_client *c = r->s->c;
	pthread_mutex_lock(&c->regions_mu);
	int err = rdsi_hash_reserve(&c->regions);
	rds_region *old = find(c, r->cookie);
	if (old) /* the daemon has ended it: only then can it give the key to another */
		end(c, old);
	if (!err && atomic_load(&r->s->closed))
		err = -EBADF; /* the daemon released it with the socket */
	if (!err) {
		rdsi_hash_add(&c->regions, &r->node, hash_key(r->cookie));
		r->live = true;
	}
	pthread_mutex_unlock(&c->regions_mu);
	return err;
}

int rds_register(rds_socket *s, rds_buffer *b, size_t off, size_t len, unsigned rights, rds_region **region)
{
	*region = NULL;
	if (rdsi_forked(s->c))
		return -ESTALE;
	if (atomic_load(&s->closed))
		return -EBADF;
	if (!b || b->c != s->c || rights & ~(unsigned)ALL_RIGHTS || !(rights & ANY_RIGHT))
		return -EINVAL;
	size_t size = rds_buffer_size(b);
	if (size == 0)
		return -EBADF;
	if (len < 1 || off > size || len > size - off)
		return -EINVAL;
	rds_region *r = calloc(1, sizeof *r);
	if (!r)
		return -ENOMEM;
	r->s = s;
	r->once = rights & RDS_USE_ONCE;
	int err = ask_register(r, b, off, len, rights);
	if (!err)
		err = add(r);
	if (err) {
		free(r);
		return err;
	}
	atomic_fetch_add(&s->refs, 1);
	atomic_fetch_add(&s->c->refs, 1);
	*region = r;
	return 0;
}

uint64_t rds_region_cookie(rds_region *r) { return r->cookie; }

static bool is_live(rds_region *r)
{
	rds_client *c = r->s->c;
	pthread_mutex_lock(&c->regions_mu);
	bool live = r->live;
	pthread_mutex_unlock(&c->regions_mu);
	return live;
}

/* open_first opens the destination to if s is in a lane other than 0 and has none yet, because
 * the daemon learns the lane with the first destination. */
static int open_first(rds_socket *s, const struct rds_addr *to)
{
	rds_client *c = s->c;
	struct rdsi_dest *d;
	pthread_mutex_lock(&c->tx.mu);
	s->exposed = true;
	int err = atomic_load(&s->closed) || c->tx.dead ? -EBADF : rdsi_client_err(c);
	if (!err && s->lane && !s->opened)
		err = rdsi_dest_get(s, to, &d);
	rdsi_tx_unlock(c);
	return err;
}

int rds_expose(rds_region *r, const struct rds_addr *peer)
{
	rds_socket *s = r->s;
	if (rdsi_forked(s->c))
		return -ESTALE;
	static const struct rds_addr everybody; /* the unspecified address */
	int err = peer ? rdsi_check_dest(s, peer) : 0;
	if (!err && !is_live(r))
		err = -EBADF;
	while (!err && peer && (err = open_first(s, peer)) == RDSI_RING_FULL)
		err = rdsi_ring_wait(s->c, false);
	if (err)
		return err;
	struct rdsi_call *call = rdsi_call_new(IPC_EXPOSE, IPC_OK);
	if (!call)
		return -ENOMEM;
	call->len = rdsi_put_expose(call->body, r->id, peer ? peer : &everybody);
	err = rdsi_overtaken(s, rdsi_call_run(s->c, call, RDSI_NEVER));
	rdsi_call_end(call);
	return err;
}

int rds_release(rds_region *r, int timeout_ms)
{
	rds_client *c = r->s->c;
	if (rdsi_forked(c))
		return -ESTALE;
	int64_t deadline = rdsi_deadline(timeout_ms);
	pthread_mutex_lock(&c->regions_mu);
	bool live = r->live;
	if (live)
		end(c, r);
	pthread_mutex_unlock(&c->regions_mu);
	if (!live)
		return -EBADF;
	struct rdsi_call *call = rdsi_call_new(IPC_RELEASE, IPC_OK);
	if (!call)
		return -ENOMEM;
	call->len = (uint32_t)(rdsi_put32(call->body, r->id) - call->body);
	int err = rdsi_call_run(c, call, deadline);
	if (err == RDSI_LATE)
		return -ETIMEDOUT;
	rdsi_call_end(call);
	if (r->once && err == -EINVAL)
		err = 0; /* used, and retired since */
	return rdsi_overtaken(r->s, err);
}

void rds_region_free(rds_region *r)
{
	if (!r || rdsi_forked(r->s->c))
		return;
	rds_socket *s = r->s;
	rds_client *c = s->c;
	pthread_mutex_lock(&c->regions_mu);
	r->freed = true;
	if (!r->live)
		free(r);
	pthread_mutex_unlock(&c->regions_mu);
	rdsi_socket_put(s);
	rdsi_client_put(c);
}
