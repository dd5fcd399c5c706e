/*
 * A program that uses every part of librds, whatever the answers are. hostile_test.go runs it
 * against a daemon that breaks every rule. It may get errors, but must neither crash nor hang.
 *
 * victim PATH SEED ROUNDS
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rds/rds.h>

#include "fence.h"

enum { SOCKS = 3, WAIT_MS = 2 };

static rds_client *client;
static rds_socket *socks[SOCKS];
static rds_buffer *buffer;
static rds_region *region;
static unsigned seed;
static int limit;
static _Atomic int rounds;

/* The one process of the daemon; each thread draws from a state of its own. */
static unsigned draw(unsigned *s, unsigned n)
{
	*s = *s * 1103515245u + 12345u;
	return (*s >> 16) % n;
}

static struct rds_addr some_addr(unsigned *s)
{
	struct rds_addr a;
	rds_addr_parse("127.0.0.1:4000", &a);
	a.ip[15] = (uint8_t)(1 + draw(s, 3));
	a.port = (uint16_t)(4000 + draw(s, SOCKS));
	return a;
}

static void send_some(rds_socket *s, unsigned *r)
{
	static char payload[1 << 18];
	struct rds_addr to = some_addr(r);
	struct rds_msg m[8] = {0};
	struct iovec iov[8];
	rds_send(s, payload, draw(r, 100), &to, RDS_DONTWAIT);
	rds_send(s, payload, draw(r, sizeof payload), &to, RDS_DONTWAIT);
	for (int i = 0; i < 8; i++) {
		iov[i] = (struct iovec){payload, draw(r, 3000)};
		m[i] = (struct rds_msg){.addr = to, .flags = RDS_DONTWAIT, .iov = &iov[i], .iovlen = 1};
	}
	rds_sendmsgs(s, m, 8);
	if (draw(r, 10) == 0)
		rds_cancel(s, &to);
	if (draw(r, 10) == 0)
		rds_close_dest(s, &to);
}

static void recv_some(rds_socket *s, unsigned *r)
{
	static _Thread_local char p[8][4096];
	struct rds_addr from;
	struct rds_msg m[8] = {0};
	struct iovec iov[8];
	rds_recv(s, p[0], draw(r, sizeof p), &from, RDS_DONTWAIT | (draw(r, 4) ? 0 : RDS_PEEK));
	for (int i = 0; i < 8; i++) {
		iov[i] = (struct iovec){p[i], sizeof p[i]};
		m[i] = (struct rds_msg){.flags = RDS_DONTWAIT, .iov = &iov[i], .iovlen = 1};
	}
	rds_recvmsgs(s, m, 8);
	rds_recv(s, p[0], sizeof p, &from, 0); /* for its timeout */
}

/* borrow_some keeps a datagram for a while, reads it, and returns some twice. */
static void borrow_some(rds_socket *s, unsigned *r)
{
	static _Thread_local struct { rds_socket *from; struct rds_borrowed b; } kept[4];
	static _Thread_local volatile uint8_t sum;
	for (int i = 0; i < 8; i++) {
		unsigned k = draw(r, 4);
		if (kept[k].from) {
			for (size_t n = 0; n < kept[k].b.len; n++)
				sum += ((const uint8_t *)kept[k].b.data)[n];
			rds_return(kept[k].from, &kept[k].b);
		}
		if (draw(r, 4) == 0)
			rds_return(s, &kept[k].b);
		kept[k].from = rds_borrow(s, &kept[k].b, RDS_DONTWAIT) == 0 ? s : NULL;
	}
	if (draw(r, 3) == 0)
		rds_wake(s);
	if (draw(r, 5) == 0)
		rds_client_wake(client);
}

static void operate(rds_socket *s, unsigned *r)
{
	struct rds_segment g[2] = {{buffer, draw(r, 1000), 64}, {buffer, 2048, 64}};
	struct rds_rdma op = {.kind = RDS_OP_WRITE, .flags = RDS_OP_NOTIFY, .cookie = 1 + draw(r, 100), .local = g, .segments = 1 + draw(r, 2)};
	struct rds_atomic a = {.kind = RDS_OP_FETCH_ADD, .flags = RDS_OP_NOTIFY, .cookie = 5, .local = {buffer, 8, 8}, .add = 1};
	struct rds_msg m = {.addr = some_addr(r), .flags = RDS_DONTWAIT, .op = &op, .atomic = draw(r, 2) ? &a : NULL};
	struct rds_completion c[16];
	struct rds_addr to = m.addr;
	uint64_t id;
	rds_sendmsg(s, &m);
	rds_barrier(s, &to, m.op_id, WAIT_MS);
	rds_wait_op(s, &to, m.op_id, c, WAIT_MS);
	rds_transfer(s, &to, &op, NULL, WAIT_MS);
	a.local.buffer = NULL;
	rds_atomic_op(s, &to, &a, &id, NULL, WAIT_MS);
	rds_hwm(s, &to, &id);
	rds_completions(s, c, 16);
	if (region) {
		struct rds_msg with = {.addr = to, .flags = RDS_DONTWAIT, .cookie = rds_region_cookie(region)};
		rds_sendmsg(s, &with);
	}
	struct rds_msg zero = {.addr = to, .flags = RDS_DONTWAIT | RDS_ZERO_COPY, .from = {buffer, 0, 100}};
	rds_sendmsg(s, &zero);
}

static void look(rds_socket *s, unsigned *r)
{
	struct rds_until u[6] = {{.socket = s, .kind = RDS_UNTIL_MESSAGE}, {.socket = s, .kind = RDS_UNTIL_SEND_TO, .addr = some_addr(r)},
		{.socket = s, .kind = RDS_UNTIL_NOTICE}, {.socket = s, .kind = RDS_UNTIL_RELIEF, .addr = some_addr(r)},
		{.socket = socks[0], .kind = RDS_UNTIL_MESSAGE}, {.socket = s, .kind = RDS_UNTIL_COMPLETION}};
	struct rds_notice n[16];
	uint32_t cookies[16];
	uint64_t mask;
	rds_wait(u, 1 + draw(r, 6), WAIT_MS);
	struct pollfd p = {.fd = rds_pollfd(s), .events = POLLIN};
	poll(&p, 1, WAIT_MS);
	rds_polled(s, u, 6);
	if (draw(r, 5) == 0)
		rds_poll_set(s, u, 4);
	rds_notices(s, n, 16);
	rds_zero_copy_done(s, cookies, 16);
	rds_cong_updates(s, &mask);
}

/* late reports that the program has run for two seconds. With a daemon that opens no destination,
 * each send takes a second before it fails. */
static bool late(void)
{
	static _Atomic time_t end;
	struct timespec now;
	time_t none = 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	atomic_compare_exchange_strong(&end, &none, now.tv_sec + 2);
	return now.tv_sec > end;
}

static void *work(void *arg)
{
	unsigned r = seed + (unsigned)(size_t)arg;
	for (int i = 0; i < limit && !late() && !rds_client_error(client, NULL, 0); i++) {
		rds_socket *s = socks[draw(&r, SOCKS)];
		rounds++;
		switch (draw(&r, 5)) {
		case 0: send_some(s, &r); break;
		case 1: recv_some(s, &r); break;
		case 2: operate(s, &r); break;
		case 3: borrow_some(s, &r); break;
		default: look(s, &r);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct rds_options o = {.path = argv[1], .timeout_ms = 3000, .call_timeout_ms = 1000, .params = {64, 128, 256, 128, 16, 16, 1, 1}};
	pthread_t threads[2];
	int err = argc == 4 ? rds_open(&o, &client) : -1;
	if (err) {
		printf("open %d\n", err);
		return 0;
	}
	seed = (unsigned)atoi(argv[2]);
	limit = atoi(argv[3]);
	for (int i = 0; i < SOCKS; i++) {
		struct rds_addr a;
		rds_addr_parse("127.0.0.1:4000", &a);
		a.port = (uint16_t)(4000 + i);
		if (rds_bind(client, &a, &socks[i]))
			goto end;
		rds_set_option(socks[i], RDS_OPT_RCVTIMEO, WAIT_MS);
		rds_set_option(socks[i], RDS_OPT_CONG_MONITOR, 1);
	}
	rds_alloc(client, 10000, &buffer);
	if (buffer)
		rds_register(socks[0], buffer, 0, 1000, RDS_ALLOW_WRITE, &region);
	if (!buffer)
		goto end;
	for (size_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i * 77));
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (region)
		rds_release(region, 100);
	rds_close_wait(socks[0], 100);
	rds_buffer_close_wait(buffer, 100);
end:
	char why[300];
	int end = rds_client_error(client, why, sizeof why);
	printf("client %d %s, %d rounds\n", end, why, rounds);
	rds_region_free(region);
	rds_buffer_free(buffer);
	for (int i = 0; i < SOCKS; i++)
		rds_socket_free(socks[i]);
	rds_client_free(client);
	return 0;
}
