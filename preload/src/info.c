/* The tables of getsockopt, RDS_INFO_*. The layouts are the kernel's: packed, addresses and ports
 * big-endian, the rest as the host has it. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "ask.h"
#include "json.h"
#include "pre.h"

enum { NAME = 32, TRANSPORT = 16, CONNECTING = 2, CONNECTED = 4, ELEMENT = 96 };

/* A row is an element of the daemon's answer. */
struct row {
	struct rds_addr local, remote; /* with ports */
	uint64_t seq, rx_seq, bytes, limit, inode;
	uint8_t lane, flags;
	char transport[TRANSPORT], name[NAME];
	uint32_t sndbuf;
};

/* A writer writes an element. */
struct writer {
	uint8_t *p;
	bool six;
};

static void bytes(struct writer *w, const void *from, size_t n)
{
	memcpy(w->p, from, n);
	w->p += n;
}

static void u64(struct writer *w, uint64_t v) { bytes(w, &v, 8); }
static void u32(struct writer *w, uint64_t v) { bytes(w, &(uint32_t){(uint32_t)v}, 4); }
static void u8(struct writer *w, uint8_t v) { bytes(w, &v, 1); }
static void port(struct writer *w, const struct rds_addr *a) { bytes(w, &(uint16_t){htons(a->port)}, 2); }
static void ip(struct writer *w, const struct rds_addr *a) { bytes(w, a->ip + (w->six ? 0 : 12), w->six ? 16 : 4); }

static void counter(struct writer *w, const struct row *r)
{
	bytes(w, r->name, NAME);
	u64(w, r->seq);
}

static void connection(struct writer *w, const struct row *r)
{
	u64(w, r->seq);
	u64(w, r->rx_seq + 1);
	ip(w, &r->local);
	ip(w, &r->remote);
	bytes(w, r->transport, TRANSPORT);
	u8(w, r->flags);
	if (!w->six)
		u8(w, r->lane);
}

static void message(struct writer *w, const struct row *r)
{
	u64(w, r->seq);
	u32(w, r->bytes);
	ip(w, &r->local);
	ip(w, &r->remote);
	port(w, &r->local);
	port(w, &r->remote);
	u8(w, 0);
	u8(w, r->lane);
}

static void a_socket(struct writer *w, const struct row *r)
{
	u32(w, r->sndbuf);
	ip(w, &r->local);
	ip(w, &r->remote);
	port(w, &r->local);
	port(w, &r->remote);
	u32(w, r->limit);
	u64(w, r->inode);
}

/* A connection has no GIDs, and the daemon does not tell limits: 0. */
static void rdma(struct writer *w, const struct row *r)
{
	static const uint8_t none[2 * 16 + 5 * 4];
	ip(w, &r->local);
	ip(w, &r->remote);
	bytes(w, none, sizeof none);
	u8(w, r->lane);
	u8(w, r->lane & 0xf);
	bytes(w, none, 2 + 4); /* padding, cache allocations */
}

/* A table says how one table is made. */
struct table {
	uint32_t opt, opt6;
	int size, size6;
	const char *kind, *queue; /* of the question; no kind: the table is always empty */
	bool whole;               /* too short a buffer gets nothing, not what fits */
	void (*write)(struct writer *w, const struct row *r);
};

static const struct table tables[] = {
	{PRE_INFO_COUNTERS, 0, 40, 0, "status", NULL, false, counter},
	{PRE_INFO_CONNECTIONS, PRE_INFO6_CONNECTIONS, 42, 65, "peers", NULL, false, connection},
	{PRE_INFO_SEND, PRE_INFO6_SEND, 26, 50, "queues", "send", false, message},
	{PRE_INFO_RETRANS, PRE_INFO6_RETRANS, 26, 50, "queues", "retrans", false, message},
	{PRE_INFO_RECV, PRE_INFO6_RECV, 26, 50, "queues", "recv", false, message},
	{PRE_INFO_SOCKETS, PRE_INFO6_SOCKETS, 28, 52, "sockets", NULL, true, a_socket},
	{PRE_INFO_TCP, PRE_INFO6_TCP, 41, 64, NULL, NULL, true, NULL},
	{PRE_INFO_IB, PRE_INFO6_IB, 68, 92, "peers", NULL, false, rdma},
};

/* An info is a table that is being made. */
struct info {
	const struct table *t;
	bool six;
	uint8_t *all;
	size_t n, cap, size;
	bool full; /* no memory */
};

static void add(struct info *x, const struct row *r)
{
	if (!x->six && x->t->write != counter && !pre_v4(&r->local))
		return;
	if (x->n + ELEMENT > x->cap) {
		size_t cap = x->cap ? 2 * x->cap : 64 * ELEMENT;
		uint8_t *more = x->full ? NULL : realloc(x->all, cap);
		if (!more) {
			x->full = true;
			return;
		}
		x->all = more;
		x->cap = cap;
	}
	struct writer w = {x->all + x->n, x->six};
	x->t->write(&w, r);
	x->n += x->size;
}

/* own adds what only this process knows of its socket. */
static void own(struct pre_sock *s, void *arg)
{
	struct row *r = arg;
	if (!atomic_load(&s->rs) || atomic_load(&s->lost) || !pre_same_host(&s->bound.at, &r->local) || s->bound.at.port != r->local.port)
		return;
	r->sndbuf = (uint32_t)s->sndbuf / 2;
	if (s->peer.family)
		r->remote = s->peer.at;
}

static void address(struct json *j, struct rds_addr *a)
{
	char text[RDS_ADDR_TEXT];
	uint16_t p = a->port; /* it may have come first */
	json_string(j, text, sizeof text);
	if (!j->bad && rds_addr_parse(text, a))
		memset(a, 0, sizeof *a);
	a->port = p;
}

/* field reads a member of an element. */
static void field(struct json *j, const char *key, struct row *r)
{
	char state[16];
	if (!strcmp(key, "local") || !strcmp(key, "addr"))
		address(j, &r->local);
	else if (!strcmp(key, "remote"))
		address(j, &r->remote);
	else if (!strcmp(key, "local_port") || !strcmp(key, "port"))
		r->local.port = (uint16_t)json_number(j);
	else if (!strcmp(key, "remote_port"))
		r->remote.port = (uint16_t)json_number(j);
	else if (!strcmp(key, "lane"))
		r->lane = (uint8_t)json_number(j);
	else if (!strcmp(key, "seq") || !strcmp(key, "next_tx_seq"))
		r->seq = json_number(j);
	else if (!strcmp(key, "rx_seq"))
		r->rx_seq = json_number(j);
	else if (!strcmp(key, "length_bytes"))
		r->bytes = json_number(j);
	else if (!strcmp(key, "recv_limit_bytes"))
		r->limit = json_number(j);
	else if (!strcmp(key, "incarnation"))
		r->inode = json_number(j);
	else if (!strcmp(key, "transport"))
		json_string(j, r->transport, sizeof r->transport);
	else if (!strcmp(key, "state")) {
		json_string(j, state, sizeof state);
		r->flags = !strcmp(state, "up") ? CONNECTED : !strcmp(state, "connecting") ? CONNECTING : 0;
	} else
		json_skip(j);
}

/* elements reads the array of peers, queues or sockets. */
static void elements(struct json *j, struct info *x)
{
	char key[32];
	json_open(j, '[');
	while (!j->bad && json_item(j)) {
		struct row r = {0};
		json_open(j, '{');
		while (!j->bad && json_key(j, key, sizeof key))
			field(j, key, &r);
		if (j->bad)
			return;
		if (x->t->write == a_socket)
			pre_socks(own, &r);
		add(x, &r);
	}
}

/* counters reads the counters of the status. */
static void counters(struct json *j, struct info *x)
{
	char key[32];
	json_open(j, '{');
	while (!j->bad && json_key(j, key, sizeof key)) {
		if (strcmp(key, "counters")) {
			json_skip(j);
			continue;
		}
		struct row r = {0};
		json_open(j, '{');
		while (!j->bad && (memset(r.name, 0, NAME), json_key(j, r.name, NAME))) {
			r.seq = json_number(j);
			add(x, &r);
		}
	}
}

/* read_answer fills the table from the daemon's answer. */
static int read_answer(struct info *x, const char *text, size_t len)
{
	struct json j = {text, text + len, false};
	char key[32];
	json_open(&j, '{');
	while (!j.bad && json_key(&j, key, sizeof key)) {
		if (strcmp(key, x->t->kind))
			json_skip(&j);
		else if (x->t->write == counter)
			counters(&j, x);
		else
			elements(&j, x);
	}
	return x->full ? -ENOMEM : j.bad ? -EPROTO : 0;
}

static int fill(struct info *x, uint64_t net)
{
	char request[160], queue[64] = "", path[256];
	char *answer;
	size_t len;
	if (!x->t->kind)
		return 0;
	if (x->t->queue)
		snprintf(queue, sizeof queue, ",\"queue\":\"%s\",\"limit\":%u", x->t->queue, PRE_CTL_LIMIT);
	snprintf(request, sizeof request, "{\"schema\":\"%s\",\"kind\":\"%s\"%s}", PRE_CTL_SCHEMA, x->t->kind, queue);
	int err = pre_ask(pre_path(path, sizeof path, net), request, &answer, &len);
	if (err)
		return err;
	err = read_answer(x, answer, len);
	free(answer);
	return err;
}

/* pre_info returns the size of an element. -ENOSPC: *len is how many bytes the table has. */
int pre_info(struct pre_sock *s, int opt, void *val, socklen_t *len)
{
	struct info x = {0};
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
		if ((uint32_t)opt == tables[i].opt || (uint32_t)opt == tables[i].opt6) {
			x.t = &tables[i];
			x.six = (uint32_t)opt != tables[i].opt;
		}
	}
	if (!x.t)
		return -ENOPROTOOPT;
	x.size = (size_t)(x.six ? x.t->size6 : x.t->size);
	int err = fill(&x, s->net);
	if (err) {
		free(x.all);
		return err;
	}
	size_t room = *len, n = room >= x.n ? x.n : x.t->whole ? 0 : room / x.size * x.size;
	err = pre_store((uintptr_t)val, x.all, n);
	*len = (socklen_t)x.n;
	free(x.all);
	return err ? err : room >= x.n ? (int)x.size : -ENOSPC;
}
