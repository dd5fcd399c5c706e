/* The descriptor of a socket shows its state to the kernel's poll, select and epoll. */
#include <stdlib.h>

#include "../../librds/src/pollfd.h"
#include "pre.h"

/* conditions makes the poll set of s. space says whether it includes room in the send buffer. One
 * thread at a time does, so that the last one knows all conditions. */
static int conditions(struct pre_sock *s, rds_socket *rs, bool space)
{
	int err = -ENOMEM;
	pthread_mutex_lock(&s->watching);
	size_t max = pre_room(s);
	struct rds_until *u = malloc(max * sizeof *u);
	if (u)
		err = rds_poll_set(rs, u, pre_conditions(s, rs, POLLIN | (space ? POLLOUT : 0), u, max));
	free(u);
	pthread_mutex_unlock(&s->watching);
	return err;
}

int pre_watch(struct pre_sock *s)
{
	rds_socket *rs;
	if (atomic_exchange(&s->watched, true))
		return 0;
	int err = pre_live(s, &rs);
	if (err || !rs) /* pre_bind comes back */
		return 0;
	bool full = rdsi_mirror_full(rs);
	atomic_store(&s->full_shown, full);
	err = conditions(s, rs, full);
	if (!err)
		err = rdsi_mirror(rs, s->own, s->end);
	if (err == -EBADF || err == -ECONNRESET || err == -ECONNABORTED) {
		shutdown(s->end, SHUT_RDWR); /* whoever polls must see the end */
		return 0;
	}
	if (err)
		atomic_store(&s->watched, false);
	else if (atomic_load(&s->has_status) || atomic_load(&s->cong))
		rdsi_mirror_ring(rs);
	return err;
}

void pre_rewatch(struct pre_sock *s)
{
	rds_socket *rs;
	if (!atomic_load(&s->watched) || pre_live(s, &rs) || !rs)
		return;
	conditions(s, rs, atomic_load(&s->full_shown)); /* fails with the session, which the descriptor shows */
	if (atomic_load(&s->has_status) || atomic_load(&s->cong))
		rdsi_mirror_ring(rs);
}

void pre_sent(struct pre_sock *s, rds_socket *rs)
{
	bool full = rdsi_mirror_full(rs);
	if (full == atomic_load(&s->full_shown))
		return;
	if (!full && rdsi_mirror_shows_full(rs))
		return; /* room is noticed in a moment */
	atomic_store(&s->full_shown, full);
	conditions(s, rs, full);
}
