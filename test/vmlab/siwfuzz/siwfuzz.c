/*
 * siwfuzz exchanges random SENDs, WRITEs and READs between siw and a peer. Both
 * sides make requests at the same time, and both verify every byte.
 *
 *   siwfuzz [-s SEED] [-n ROUNDS] [-p siw] [-b BAD]... [-t SECONDS] [-v] connect IP PORT
 *   siwfuzz [...] listen PORT
 *
 *   -s SEED     fixes the requests, the same on both sides (1)
 *   -n ROUNDS   number of rounds, the same on both sides (10)
 *   -p siw      the peer is siwfuzz, too
 *   -b BAD      also makes requests that siw handles wrongly:
 *     inline        SENDs and WRITEs with inline data
 *     page          messages of up to 32 bytes, from one piece of memory, that cross a page
 *     fenced-read   READs with a fence
 *     empty-read    READs of no bytes; without -p siw they are always made
 *     both-read     READs of both sides in the same round; without -p siw they are always made
 *   -t SECONDS  ends siwfuzz if nothing completes for so long (25)
 *   -v          prints this side's requests of each round
 *
 * In a round, each side draws its requests and sends the peer the list of them
 * (PLAN). A side that has the peer's list posts receives for it and reports that
 * (READY). Then the requests of both sides run. When a side has all completions
 * and has verified what it READ, it reports that (DONE). When it has the peer's
 * DONE, it verifies what has arrived.
 *
 * Exit status: 0 all right; 1 data or completions are wrong; 2 usage, no
 * connection, or a failed call; 3 the connection ended; 4 nothing completed for
 * SECONDS.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plan.h"

enum { DEPTH = 128, LINGER_MS = 2000, SETUP_MS = 30000 };
enum { PLAN, READY, DONE, CONTROLS }; /* control messages, in their order */

/* hello is the private data of both sides: their memory. */
struct hello { uint64_t addr; uint32_t rkey; } __attribute__((packed));

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_comp_channel *bell;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct hello peer;
static unsigned char *memory;        /* of MEMORY bytes */
static unsigned char *theirs;        /* what the peer's SOURCE contains */
static unsigned char *want;          /* what an area should contain */
static uint64_t seed = 1;
static uint32_t bad, max_inline, round_no, verbose;
static int limit_ms = 25000;
static const char *doing = "connect", *ending;
static long long end_ms; /* when the connection has ended: until when completions are awaited; or 0 */

static struct plan mine, peers;
static struct piece receive[MAX_REQUESTS][MAX_SGE]; /* the memory for each of the peer's SENDs */
static int receive_pieces[MAX_REQUESTS];

/* Ids of work requests. A request of the plan has its index, a control message
 * SENT_CONTROL, and a receive RECEIVED and the number of receives posted before. */
enum { SENT_CONTROL = 1000, RECEIVED = 1 << 20 };
static uint32_t posted_receives, taken_receives;
static uint32_t receive_length[1 << 16]; /* expected, by number of the receive; with the highest bit: a control message */
static int in_flight;                    /* signaled requests without a completion */
static int last_done[2];                 /* the last completed request: of SENDs and WRITEs, of READs */
static uint32_t controls[CONTROLS];      /* how many of each kind have come */

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void print_request(const struct request *r, int i)
{
	static const char *name[] = { "SEND", "WRITE", "READ" };

	printf("  %d: %s of %u at %#x flags %#x:", i, name[r->op % 3], r->len, r->at, r->flags);
	for (uint32_t k = 0; k < r->pieces && k < MAX_SGE; k++)
		printf(" %#x+%u", r->piece[k].off, r->piece[k].len);
	putchar('\n');
}

/* finish prints the result, and on a failure of a round both plans, and ends. */
static void __attribute__((format(printf, 2, 3), noreturn)) finish(int status, const char *format, ...)
{
	va_list a;

	printf("siwfuzz: seed %llu, round %u, %s: ", (unsigned long long)seed, round_no, doing);
	va_start(a, format);
	vprintf(format, a);
	va_end(a);
	putchar('\n');
	if (status != 0 && status != 2) {
		puts("mine:");
		for (uint32_t i = 0; i < mine.count; i++)
			print_request(&mine.request[i], i);
		puts("the peer's:");
		for (uint32_t i = 0; i < peers.count && i < MAX_REQUESTS; i++)
			print_request(&peers.request[i], i);
	}
	fflush(stdout);
	_exit(status);
}

static void must(int ok, const char *what)
{
	if (!ok)
		finish(2, "%s: %s", what, strerror(errno));
}

/* take handles one completion. */
static void take(const struct ibv_wc *wc)
{
	uint32_t n = wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS)
		finish(3, "completion of %s %u: %s", n >= RECEIVED ? "receive" : "request", n % RECEIVED, ibv_wc_status_str(wc->status));
	if (n >= RECEIVED) {
		n -= RECEIVED;
		if (n != taken_receives % RECEIVED || wc->opcode != IBV_WC_RECV)
			finish(1, "completion of receive %u, opcode %d, want %u", n, wc->opcode, taken_receives);
		taken_receives++;
		uint32_t *length = &receive_length[n % (1 << 16)];
		if (*length & 1u << 31)
			controls[*length & 3]++;
		else if (wc->byte_len != *length)
			finish(1, "SEND of %u bytes, the completion says %u", *length, wc->byte_len);
		return;
	}
	in_flight--;
	if (n == SENT_CONTROL)
		return;
	const struct request *r = &mine.request[n];
	int *last = &last_done[r->op == OP_READ];
	if (n >= mine.count || *last >= (int)n || !(r->flags & SIGNALED))
		finish(1, "completion of request %u after %d", n, *last);
	if (r->op == OP_READ && wc->byte_len != r->len)
		finish(1, "READ of %u bytes, the completion says %u", r->len, wc->byte_len);
	*last = n;
}

/* look_for_end takes an event, which means that the connection has ended. pump then
 * takes completions for LINGER_MS more. If siw has refused a READ of the peer's, it
 * does not flush its receives, and the event is all that there is. */
static void look_for_end(void)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(channel, &e))
		return;
	ending = rdma_event_str(e->event);
	if (!end_ms)
		end_ms = now_ms() + LINGER_MS;
	rdma_ack_cm_event(e);
}

/* pump takes completions until *n is at least want_n; without n, until no request
 * is in flight. */
static void pump(const char *what, const uint32_t *n, uint32_t want_n)
{
	struct pollfd p[2] = { { .fd = bell->fd, .events = POLLIN }, { .fd = channel->fd, .events = POLLIN } };
	long long end = now_ms() + limit_ms;
	struct ibv_wc wc;
	struct ibv_cq *from;
	void *context;
	int got, armed = 0;

	doing = what;
	while (n ? *n < want_n : in_flight > 0) {
		got = ibv_poll_cq(cq, 1, &wc);
		if (got > 0) {
			take(&wc);
			end = now_ms() + limit_ms;
			armed = 0;
			continue;
		}
		must(got == 0, "ibv_poll_cq");
		if (!armed) {
			must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
			armed = 1;
			continue;
		}
		if (end_ms && now_ms() > end_ms)
			finish(3, "%s, and no completion", ending);
		if (now_ms() > end)
			finish(4, "nothing for %d s: %d in flight, receive %u of %u, PLAN %u READY %u DONE %u", limit_ms / 1000,
			       in_flight, taken_receives, posted_receives, controls[PLAN], controls[READY], controls[DONE]);
		poll(p, 2, 100);
		if (p[0].revents && !ibv_get_cq_event(bell, &from, &context))
			ibv_ack_cq_events(from, 1);
		if (p[1].revents)
			look_for_end();
		armed = 0;
	}
}

static void post_receive(const struct piece *piece, int pieces, uint32_t length)
{
	struct ibv_sge sge[MAX_SGE];
	struct ibv_recv_wr *wrong, wr = { .wr_id = RECEIVED + posted_receives % RECEIVED, .sg_list = sge, .num_sge = pieces };

	for (int i = 0; i < pieces; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)memory + piece[i].off, piece[i].len, mr->lkey };
	receive_length[posted_receives++ % (1 << 16)] = length;
	must(!ibv_post_recv(id->qp, &wr, &wrong), "ibv_post_recv");
}

static void expect_control(int which, uint32_t round)
{
	struct piece p = { CONTROL + SLOT * (2 * which + round % 2), SLOT };

	post_receive(&p, 1, 1u << 31 | which);
}

static void send_control(int which, const void *data, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)memory + CONTROL + SLOT * (2 * CONTROLS + which), len, mr->lkey };
	struct ibv_send_wr *wrong, wr = { .wr_id = SENT_CONTROL, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED };

	memcpy((void *)(uintptr_t)sge.addr, data, len);
	in_flight++;
	must(!ibv_post_send(id->qp, &wr, &wrong), "ibv_post_send of a control message");
}

/* read_plan takes the peer's plan and posts the receives for it and for the next
 * control messages. */
static void read_plan(void)
{
	uint32_t at = RECEIVE;

	memcpy(&peers, memory + CONTROL + SLOT * (2 * PLAN + round_no % 2), sizeof peers);
	if (peers.round != round_no || peers.count > MAX_REQUESTS)
		finish(1, "the peer's plan is of round %u, %u requests", peers.round, peers.count);
	for (uint32_t i = 0; i < peers.count; i++) {
		const struct request *r = &peers.request[i];
		uint32_t left = r->len + (one_in(2) ? 0 : draw(100)), most = one_in(2) ? 1 : 1 + draw(MAX_SGE);
		int n = 0;

		if (r->op != OP_SEND)
			continue;
		if (left == 0)
			left = 1; /* siw's library takes no receive without memory */
		while (left > 0) {
			struct piece *p = &receive[i][n];

			p->len = n + 1 == (int)most ? left : 1 + draw(left);
			p->off = at + draw(GUARD);
			at = p->off + p->len;
			left -= p->len;
			n++;
		}
		receive_pieces[i] = n;
		post_receive(receive[i], n, r->len);
	}
	expect_control(DONE, round_no);
	expect_control(PLAN, round_no + 1);
	expect_control(READY, round_no + 1);
}

/* post_mine posts the requests of the plan in lists, which end at each request
 * with ALONE. */
static void post_mine(void)
{
	struct ibv_sge sge[MAX_REQUESTS][MAX_SGE];
	struct ibv_send_wr wr[MAX_REQUESTS], *wrong;
	static const int opcode[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	uint32_t first = 0;

	memset(wr, 0, sizeof wr);
	last_done[0] = last_done[1] = -1;
	for (uint32_t i = 0; i < mine.count; i++) {
		const struct request *r = &mine.request[i];

		for (uint32_t k = 0; k < r->pieces; k++)
			sge[i][k] = (struct ibv_sge){ (uintptr_t)memory + r->piece[k].off, r->piece[k].len, mr->lkey };
		wr[i].wr_id = i;
		wr[i].sg_list = sge[i];
		wr[i].num_sge = r->pieces;
		wr[i].opcode = opcode[r->op];
		wr[i].send_flags = r->flags & (FENCE | SIGNALED | SOLICITED | INLINE);
		wr[i].wr.rdma.remote_addr = peer.addr + r->at;
		wr[i].wr.rdma.rkey = peer.rkey;
		if (r->flags & SIGNALED)
			in_flight++;
		if (i + 1 < mine.count && !(r->flags & ALONE)) {
			wr[i].next = &wr[i + 1];
			continue;
		}
		must(!ibv_post_send(id->qp, &wr[first], &wrong), "ibv_post_send");
		first = i + 1;
	}
}

/* compare checks n bytes of the memory at an offset. request is -1 for none. */
static void compare(const char *what, int request, uint32_t at, const unsigned char *right, uint32_t n)
{
	uint32_t first = 0, wrong = 0;

	if (memcmp(memory + at, right, n) == 0)
		return;
	for (uint32_t i = n; i-- > 0;)
		if (memory[at + i] != right[i]) {
			first = i;
			wrong++;
		}
	finish(1, "%s, request %d: byte %u of %u at %#x is %02x, want %02x; %u bytes are wrong", what, request, first, n, at,
	       memory[at + first], right[first], wrong);
}

/* verify_reads checks that SINK has what was READ. It keeps track in want of the
 * peer's TARGET, as this side has written it before each READ. */
static void verify_reads(void)
{
	uint32_t end = SINK;

	doing = "verify what was READ";
	for (uint32_t i = 0; i < mine.count; i++) {
		const struct request *r = &mine.request[i];
		uint32_t at = r->piece[0].off;

		if (r->op == OP_WRITE)
			gather(want + r->at - TARGET, r, memory + SOURCE);
		if (r->op != OP_READ)
			continue;
		compare("READ", i, at, r->flags & FROM_TARGET ? want + r->at - TARGET : theirs + r->at - SOURCE, r->len);
		memset(memory + at, spoil(round_no), r->len);
		end = at + r->len;
	}
	memset(want, spoil(round_no), AREA);
	compare("beside the READs", -1, SINK, want, end + GUARD - SINK);
	memset(memory + SINK, spoil(round_no + 1), AREA);
}

/* verify_arrived checks that RECEIVE and TARGET have what the peer has sent. */
static void verify_arrived(void)
{
	unsigned char *message = want + AREA;
	uint32_t end = TARGET;

	doing = "verify what arrived";
	for (uint32_t i = 0; i < peers.count; i++) {
		const struct request *r = &peers.request[i];
		uint32_t had = 0;

		if (r->op == OP_WRITE) {
			gather(want + r->at - TARGET, r, theirs);
			if (r->len > 0 && r->at + r->len > end)
				end = r->at + r->len;
		}
		if (r->op != OP_SEND)
			continue;
		gather(message, r, theirs);
		for (int k = 0; k < receive_pieces[i]; k++) {
			const struct piece *p = &receive[i][k];
			uint32_t n = r->len - had < p->len ? r->len - had : p->len;

			compare("SEND", i, p->off, message + had, n);
			memset(memory + p->off, spoil(round_no), n);
			had += n;
		}
	}
	compare("WRITEs", -1, TARGET, want, end + GUARD - TARGET);
	memset(want, spoil(round_no), AREA);
	compare("beside the SENDs", -1, RECEIVE, want, AREA);
	memset(memory + TARGET, spoil(round_no + 1), AREA);
	memset(memory + RECEIVE, spoil(round_no + 1), AREA);
	memset(want, spoil(round_no + 1), AREA);
}

static void run_round(int active)
{
	uint32_t nothing[4] = { round_no };

	/* The sides take turns. A request of siw's that waits for a READ holds up siw's
	 * answers to the peer's READs, so two siw could wait for each other for ever. */
	int no_read = !(bad & BAD_BOTH_READ) && round_no % 2 == (uint32_t)active;

	make_plan(&mine, round_no, no_read ? bad | NO_READ : bad, max_inline);
	if (!active && round_no == 0) /* the side that has connected must send first */
		pump("wait for the first PLAN", &controls[PLAN], 1);
	send_control(PLAN, &mine, sizeof mine);
	pump("wait for PLAN", &controls[PLAN], round_no + 1);
	read_plan();
	send_control(READY, nothing, sizeof nothing);
	pump("wait for READY", &controls[READY], round_no + 1);
	if (verbose)
		for (uint32_t i = 0; i < mine.count; i++)
			print_request(&mine.request[i], i);
	post_mine();
	pump("wait for completions", NULL, 0);
	verify_reads();
	send_control(DONE, nothing, sizeof nothing);
	pump("wait for DONE", &controls[DONE], round_no + 1);
	pump("wait for completions of control messages", NULL, 0);
	verify_arrived();
}

/* make_qp makes id's queue pair and what it needs, registers the memory, and posts
 * the first receives. */
static void make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = MAX_SGE, .max_recv_sge = MAX_SGE,
			 .max_inline_data = bad & BAD_INLINE ? 64 : 0 },
		.qp_type = IBV_QPT_RC,
	};

	must((pd = ibv_alloc_pd(id->verbs)) != NULL, "ibv_alloc_pd");
	must((bell = ibv_create_comp_channel(id->verbs)) != NULL, "ibv_create_comp_channel");
	must((cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, bell, 0)) != NULL, "ibv_create_cq");
	attr.send_cq = attr.recv_cq = cq;
	must(!rdma_create_qp(id, pd, &attr), "rdma_create_qp");
	max_inline = bad & BAD_INLINE ? attr.cap.max_inline_data : 0;
	mr = ibv_reg_mr(pd, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(mr != NULL, "ibv_reg_mr");
	expect_control(PLAN, 0);
	expect_control(READY, 0);
}

/* await takes the next event, which must be of the type. If greeted, it takes the
 * peer's hello out of it. */
static void await(enum rdma_cm_event_type type, int greeted)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *e;

	if (poll(&p, 1, SETUP_MS) != 1)
		finish(2, "no %s", rdma_event_str(type));
	must(!rdma_get_cm_event(channel, &e), "rdma_get_cm_event");
	if (e->event != type)
		finish(2, "%s, want %s", rdma_event_str(e->event), rdma_event_str(type));
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		id = e->id;
	if (greeted) {
		if (e->param.conn.private_data_len < sizeof peer)
			finish(2, "%u bytes of private data", e->param.conn.private_data_len);
		memcpy(&peer, e->param.conn.private_data, sizeof peer);
	}
	rdma_ack_cm_event(e);
}

/* join connects or accepts. */
static void join(int active)
{
	struct hello own = { (uintptr_t)memory, mr->rkey };
	int depth = 1 + draw(8);
	struct rdma_conn_param p = { .responder_resources = depth, .initiator_depth = depth,
		.private_data = &own, .private_data_len = sizeof own };

	must(!(active ? rdma_connect(id, &p) : rdma_accept(id, &p)), active ? "rdma_connect" : "rdma_accept");
	await(RDMA_CM_EVENT_ESTABLISHED, active);
}

static void connect_to(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ip, &a.sin_addr);
	must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000), "rdma_resolve_addr");
	await(RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
	await(RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	make_qp();
	join(1);
}

static void listen_at(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct rdma_cm_id *listener;

	must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(listener, (struct sockaddr *)&a), "rdma_bind_addr");
	must(!rdma_listen(listener, 1), "rdma_listen");
	await(RDMA_CM_EVENT_CONNECT_REQUEST, 1);
	make_qp();
	join(0);
}

static int usage(void)
{
	fputs("usage: siwfuzz [-s SEED] [-n ROUNDS] [-p siw] [-b inline|page|fenced-read|empty-read|both-read]... [-t SECONDS] [-v] connect IP PORT | listen PORT\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	uint32_t rounds = 10;
	unsigned long long requests = 0;
	int c, active, peer_is_siw = 0;

	while ((c = getopt(argc, argv, "s:n:p:b:t:v")) != -1)
		switch (c) {
		case 's': seed = strtoull(optarg, NULL, 0); break;
		case 'n': rounds = strtoul(optarg, NULL, 0); break;
		case 't': limit_ms = 1000 * atoi(optarg); break;
		case 'p': peer_is_siw = !strcmp(optarg, "siw"); break;
		case 'v': verbose = 1; break;
		case 'b':
			if (!strcmp(optarg, "inline"))
				bad |= BAD_INLINE;
			else if (!strcmp(optarg, "page"))
				bad |= BAD_PAGE;
			else if (!strcmp(optarg, "fenced-read"))
				bad |= BAD_FENCED_READ;
			else if (!strcmp(optarg, "empty-read"))
				bad |= BAD_EMPTY_READ;
			else if (!strcmp(optarg, "both-read"))
				bad |= BAD_BOTH_READ;
			else
				return usage();
			break;
		default: return usage();
		}
	if (!peer_is_siw) /* soft answers READs of no bytes rightly, and READs while it waits */
		bad |= BAD_EMPTY_READ | BAD_BOTH_READ;
	argv += optind;
	argc -= optind;
	active = argc == 3 && !strcmp(argv[0], "connect");
	if (!active && (argc != 2 || strcmp(argv[0], "listen")))
		return usage();
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	theirs = malloc(SOURCE_SIZE);
	want = malloc(2 * AREA);
	channel = rdma_create_event_channel();
	must(memory != MAP_FAILED && theirs && want && channel, "start");
	/* The side that connects has the even pattern. */
	random_state = mix(2 * seed + !active);
	pattern(memory + SOURCE, 2 * seed + !active);
	pattern(theirs, 2 * seed + active);
	memset(memory + TARGET, spoil(0), CONTROL - TARGET);
	memset(want, spoil(0), AREA);
	if (active)
		connect_to(argv[1], atoi(argv[2]));
	else
		listen_at(atoi(argv[1]));
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	for (round_no = 0; round_no < rounds; round_no++) {
		run_round(active);
		requests += mine.count;
	}
	rdma_disconnect(id);
	doing = "end";
	finish(0, "%llu requests verified", requests);
}
