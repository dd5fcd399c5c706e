/*
 * What one destination and one socket may have.
 *
 * Message ids and send memory are common to all sockets of a process. A destination that takes
 * nothing keeps what its messages have, so each has its share, which is less the less is
 * free. A destination beyond its share is congested until it holds three quarters of it.
 *
 * The send buffer is one for all destinations of a socket. What is on its way to a congested
 * one does not count against it.
 */
#include "notice.h"
#include "rx.h"
#include "tx.h"

enum {
	ID_SHARE = 8,  /* an eighth of the free message ids */
	MEM_SHARE = 4, /* a quarter of the free send memory, when that is scarce */
};

static size_t free_mem(const struct rdsi_tx *t) { return (size_t)t->arena.count * SHM_WINDOW_SIZE - t->arena.in_use; }

static bool over_share(size_t holds, size_t part, size_t free) { return holds > 0 && part * holds >= free; }

/* rdsi_ids_over reports that d holds its share of message ids. */
bool rdsi_ids_over(struct rdsi_dest *d) { return over_share(d->pending, ID_SHARE, d->sock->c->tx.nfree); }

/* rdsi_mem_over reports that d holds its share of send memory, and that this is scarce. */
bool rdsi_mem_over(struct rdsi_dest *d)
{
	size_t free = free_mem(&d->sock->c->tx);
	return free < SHM_WINDOW_SIZE && over_share(d->mem, MEM_SHARE, free);
}

/* rdsi_refuse notes that d was refused for holding its share. */
int rdsi_refuse(struct rdsi_dest *d)
{
	if (!d->over) {
		d->over = true;
		rdsi_list_add(d->sock->c->tx.over.prev, &d->on_over);
	}
	return RDSI_CONGESTED;
}

/* rdsi_relieve_shares announces the relief of destinations that hold less than their share. */
void rdsi_relieve_shares(rds_client *c)
{
	struct rdsi_tx *t = &c->tx;
	size_t free = t->nfree, mem = free_mem(t);
	bool scarce = t->full && mem < SHM_WINDOW_SIZE;
	for (struct rdsi_link *l = t->over.next, *next; l != &t->over; l = next) {
		next = l->next;
		struct rdsi_dest *d = RDSI_OF(l, struct rdsi_dest, on_over);
		if ((size_t)4 * ID_SHARE * d->pending > 3 * free || (scarce && 4 * MEM_SHARE * d->mem > 3 * mem))
			continue;
		rdsi_list_del(l);
		d->over = false;
		rdsi_relieve(d);
	}
}

/* rdsi_relieve wakes those who wait for the relief of d. */
void rdsi_relieve(struct rdsi_dest *d)
{
	if (atomic_load(&d->sock->cong_mon)) {
		pthread_mutex_lock(&d->sock->c->rx.mu);
		rdsi_cong_relieved(d->sock, &d->to);
		rdsi_rx_unlock(d->sock->c);
	}
	rdsi_notify(d->sock, WANT_RELIEF, false);
}

bool rdsi_room(rds_socket *s) { return rdsi_charged(s) < s->sndbuf && s->msgs < rdsi_max_msgs(s->sndbuf); }

bool rdsi_half_full(rds_socket *s)
{
	return rdsi_charged(s) >= s->sndbuf / 2 || s->msgs >= rdsi_max_msgs(s->sndbuf) / 2;
}

/* rdsi_full reports whether the send buffer has no room. It first checks which destinations
 * have become congested. arm asks for news of congestion that begins later. */
bool rdsi_full(rds_socket *s, bool arm)
{
	if (rdsi_room(s))
		return false;
	for (struct rdsi_link *l = s->busy.next; l != &s->busy; l = l->next) {
		struct rdsi_dest *d = RDSI_OF(l, struct rdsi_dest, on_busy);
		if (!d->open)
			continue;
		if (arm)
			atomic_fetch_or(rdsi_want_slot(&s->c->seg, d->slot), SHM_WANT_CROWDED);
		rdsi_look(d);
	}
	return !rdsi_room(s);
}

/* rdsi_look reports whether d is congested, and counts its pending bytes accordingly. */
bool rdsi_look(struct rdsi_dest *d)
{
	rds_socket *s = d->sock;
	bool on = rdsi_dest_congested(d);
	if (on != d->parked) {
		d->parked = on;
		s->parked += on ? d->queued : -d->queued;
		s->msgs -= on ? d->counted : -d->counted;
	}
	return on;
}

/* rdsi_charge counts datagrams to d that are on their way. */
void rdsi_charge(struct rdsi_dest *d, const struct rdsi_sum *sum)
{
	rds_socket *s = d->sock;
	d->datagrams += sum->datagrams;
	d->counted += sum->non_empty;
	d->queued += sum->bytes;
	s->queued += sum->bytes;
	if (d->parked)
		s->parked += sum->bytes;
	else
		s->msgs += sum->non_empty;
}

void rdsi_uncharge(struct rdsi_dest *d, const struct rdsi_sum *sum)
{
	rds_socket *s = d->sock;
	d->datagrams -= sum->datagrams;
	d->counted -= sum->non_empty;
	d->queued -= sum->bytes;
	s->queued -= sum->bytes;
	if (d->parked)
		s->parked -= sum->bytes;
	else
		s->msgs -= sum->non_empty;
}
