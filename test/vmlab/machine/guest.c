/*
 * This program runs inside the virtual machine, on librdmacm, libibverbs and the
 * kernel's siw driver. It carries out one-line commands of the tests, which are
 * Go programs on the host. Commands come over one TCP connection to the host. Each
 * has an answer of one line: "ok", here with what the list says, or "err ERRNO WHAT".
 *
 *   listen PORT                      listens for connections at any address
 *   open IP PORT                     makes a connection's queue pair: ok ADDR RKEY
 *   connect DEPTH PRIVATE            connects it: ok EVENT STATUS PRIVATE
 *   request                          waits for a connection request: ok ADDR RKEY PRIVATE
 *   accept DEPTH PRIVATE             accepts it: ok EVENT STATUS PRIVATE
 *   reject PRIVATE                   rejects it
 *   event MS                         waits for a connection event: ok EVENT STATUS PRIVATE, or ok none
 *   disconnect                       calls rdma_disconnect
 *   close                            destroys queue pair and connection in any state
 *   reg ACCESS                       registers the memory anew with these rights: ok ADDR RKEY
 *   recv ID OFF LEN                  posts a receive
 *   send ID OFF LEN FLAGS            posts a signaled SEND
 *   write|read ID OFF LEN RADDR RKEY posts a signaled RDMA WRITE or READ
 *   times N COMMAND                  does a recv, send, write or read N times
 *   poll MS                          waits for a completion: ok ID STATUS OPCODE BYTES, or ok none
 *   drain N MS                       waits for N completions, up to MS for each, and stops at a bad
 *                                    one: ok GOOD ID STATUS, the last two of the bad one or 0
 *   fill OFF LEN SEED                fills memory
 *   sum OFF LEN                      sums memory up by FNV-1a: ok SUM
 *   listening PORT                   waits until a program listens at this TCP port
 *   spawn COMMAND                    runs a shell command in the background
 *   wait                             waits for this command: ok STATUS OUTPUT, with | for newlines
 *   kill                             kills this command if it still runs
 *   quit                             ends this program
 *
 * There is one connection at a time. DEPTH is how many READs may be
 * in progress in either direction.
 * PRIVATE, the private data, is hexadecimal, or "-" for none. ADDR and RKEY name
 * the 4 MiB of memory in which every OFF counts.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY = 4 << 20, DEPTH = 1024, EVENT_MS = 30000, WAIT_MS = 30000 };

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *id;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char *memory;
static pid_t child;
static int times; /* how often the current command posts its request */
static FILE *out;

/* fail answers with errno and with what failed: a call, or the event that came
 * instead of the expected one. */
static int fail(const char *what)
{
	fprintf(out, "err %d %s: %s\n", errno, what, strerror(errno));
	return -1;
}

/* now_ms returns a time in milliseconds. A count of sleeps would be a bad clock,
 * because sleeps take far longer than asked for in the slow machine. */
static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static size_t from_hex(const char *s, unsigned char *b, size_t max)
{
	size_t n = 0;
	unsigned v;

	for (; n < max && s[0] && s[1] && sscanf(s, "%2x", &v) == 1; s += 2)
		b[n++] = v;
	return n;
}

static void put_hex(const void *data, size_t n)
{
	const unsigned char *b = data;

	fputs(n ? " " : " -", out);
	while (n--)
		fprintf(out, "%02x", *b++);
}

static struct rdma_cm_event *next_event(int ms)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *e;

	if (poll(&p, 1, ms) != 1) {
		errno = ETIMEDOUT;
		return NULL;
	}
	return rdma_get_cm_event(channel, &e) ? NULL : e;
}

/* put_event answers with e and acknowledges it. */
static void put_event(struct rdma_cm_event *e)
{
	const char *name = rdma_event_str(e->event);

	fprintf(out, "ok %s %d", name + strlen("RDMA_CM_EVENT_"), e->status);
	put_hex(e->param.conn.private_data, e->param.conn.private_data_len);
	fputc('\n', out);
	rdma_ack_cm_event(e);
}

/* expect takes the next event. It answers with an error and returns -1 if that
 * is not want. */
static int expect(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e = next_event(EVENT_MS);
	int got;

	if (!e)
		return fail(rdma_event_str(want));
	got = e->event;
	errno = e->status < 0 ? -e->status : EPROTO;
	rdma_ack_cm_event(e);
	return got == (int)want ? 0 : fail(rdma_event_str(got));
}

static int reg(int access)
{
	if (mr && ibv_dereg_mr(mr))
		return fail("ibv_dereg_mr");
	mr = ibv_reg_mr(pd, memory, MEMORY, access);
	return mr ? 0 : fail("ibv_reg_mr");
}

/* make_qp makes id's queue pair and what it needs, and registers the memory. */
static int make_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	pd = ibv_alloc_pd(id->verbs);
	if (!pd)
		return fail("ibv_alloc_pd");
	cq = ibv_create_cq(id->verbs, 4 * DEPTH, NULL, NULL, 0);
	if (!cq)
		return fail("ibv_create_cq");
	attr.send_cq = attr.recv_cq = cq;
	if (rdma_create_qp(id, pd, &attr))
		return fail("rdma_create_qp");
	return reg(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void close_all(void)
{
	struct rdma_cm_event *e;

	if (id && id->qp)
		rdma_destroy_qp(id);
	if (mr)
		ibv_dereg_mr(mr);
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	while ((e = next_event(0)))
		rdma_ack_cm_event(e);
	if (id)
		rdma_destroy_id(id);
	id = NULL;
	mr = NULL;
	cq = NULL;
	pd = NULL;
}

static void put_memory(void)
{
	fprintf(out, "ok %llu %u", (unsigned long long)(uintptr_t)memory, mr->rkey);
}

static void do_listen(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (listener)
		rdma_destroy_id(listener);
	listener = NULL;
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&a) || rdma_listen(listener, 8)) {
		fail("rdma_listen");
		return;
	}
	fputs("ok\n", out);
}

static void do_open(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, ip, &a.sin_addr);
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000)) {
		fail("rdma_resolve_addr");
		return;
	}
	if (expect(RDMA_CM_EVENT_ADDR_RESOLVED))
		return;
	if (rdma_resolve_route(id, 2000)) {
		fail("rdma_resolve_route");
		return;
	}
	if (expect(RDMA_CM_EVENT_ROUTE_RESOLVED) || make_qp())
		return;
	put_memory();
	fputc('\n', out);
}

static void do_request(void)
{
	unsigned char private[256];
	struct rdma_cm_event *e = next_event(EVENT_MS);
	size_t n;

	if (!e || e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		fail(e ? rdma_event_str(e->event) : "no connection request");
		if (e)
			rdma_ack_cm_event(e);
		return;
	}
	id = e->id;
	n = e->param.conn.private_data_len;
	memcpy(private, e->param.conn.private_data, n);
	rdma_ack_cm_event(e);
	if (make_qp())
		return;
	put_memory();
	put_hex(private, n);
	fputc('\n', out);
}

/* do_join connects or accepts, and answers with the event that says how that
 * ended. */
static void do_join(int (*join)(struct rdma_cm_id *, struct rdma_conn_param *), int depth, const char *hex)
{
	unsigned char private[256];
	struct rdma_conn_param p = {
		.responder_resources = depth, .initiator_depth = depth, .private_data = private,
		.private_data_len = from_hex(hex, private, sizeof private),
	};
	struct rdma_cm_event *e;

	if (join(id, &p)) {
		fail("connect or accept");
		return;
	}
	e = next_event(EVENT_MS);
	if (e)
		put_event(e);
	else
		fail("connect or accept");
}

static void do_reject(const char *hex)
{
	unsigned char private[256];

	if (rdma_reject(id, private, from_hex(hex, private, sizeof private)))
		fail("rdma_reject");
	else
		fputs("ok\n", out);
}

static void do_event(int ms)
{
	struct rdma_cm_event *e = next_event(ms);

	if (e)
		put_event(e);
	else
		fputs("ok none\n", out);
}

/* posted answers with the result of a post call. */
static void posted(int rc)
{
	if (rc) {
		errno = rc < 0 ? -rc : rc;
		fail("post");
	} else
		fputs("ok\n", out);
}

static void do_send(int opcode, uint64_t wr_id, size_t off, unsigned len, int flags, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + off, .length = len, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = len > 0, .opcode = opcode,
		.send_flags = flags | IBV_SEND_SIGNALED, .wr.rdma = { raddr, rkey },
	};
	int rc = 0;

	for (; times > 0 && !rc; times--)
		rc = ibv_post_send(id->qp, &wr, &bad);
	posted(rc);
}

static void do_recv(uint64_t wr_id, size_t off, unsigned len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory + off, .length = len, .lkey = mr->lkey };
	/* siw's library refuses a receive without SGEs. */
	struct ibv_recv_wr *bad, wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };
	int rc = 0;

	for (; times > 0 && !rc; times--)
		rc = ibv_post_recv(id->qp, &wr, &bad);
	posted(rc);
}

/* next_wc waits for a completion for up to ms. It returns 1, 0 if none came, or a
 * negative number on an error. */
static int next_wc(struct ibv_wc *wc, int ms)
{
	long long end = now_ms() + ms;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0 && now_ms() < end)
		usleep(1000);
	return n;
}

static void do_drain(int count, int ms)
{
	struct ibv_wc wc = { 0 };
	int good = 0;

	while (good < count && next_wc(&wc, ms) > 0 && wc.status == IBV_WC_SUCCESS)
		good++;
	if (wc.status == IBV_WC_SUCCESS)
		wc.wr_id = 0;
	fprintf(out, "ok %d %llu %d\n", good, (unsigned long long)wc.wr_id, wc.status);
}

static void do_poll(int ms)
{
	struct ibv_wc wc;
	int n = next_wc(&wc, ms);

	if (n < 0)
		fail("ibv_poll_cq");
	else if (n == 0)
		fputs("ok none\n", out);
	else
		fprintf(out, "ok %llu %d %d %u\n", (unsigned long long)wc.wr_id, wc.status, wc.opcode, wc.byte_len);
}

static void do_sum(size_t off, size_t len)
{
	uint64_t h = 14695981039346656037ULL;

	while (len--)
		h = (h ^ memory[off++]) * 1099511628211ULL;
	fprintf(out, "ok %llu\n", (unsigned long long)h);
}

/* do_listening looks in the kernel's table instead of connecting. It waits 10 ms
 * more than needed, because siw never answers a connection that comes while it
 * begins to listen. */
static void do_listening(int port)
{
	long long end = now_ms() + EVENT_MS;
	char line[256], want[32];
	int found = 0;
	FILE *f;

	snprintf(want, sizeof want, ":%04X 00000000:0000 0A", port);
	while (!found && now_ms() < end) {
		usleep(10000);
		f = fopen("/proc/net/tcp", "r");
		while (f && !found && fgets(line, sizeof line, f))
			found = strstr(line, want) != NULL;
		if (f)
			fclose(f);
	}
	usleep(10000);
	fputs(found ? "ok\n" : "err 0 no program listens\n", out);
}

static void do_spawn(const char *command)
{
	child = fork();
	if (child == 0) {
		setsid();
		if (!freopen("/tmp/out", "w", stdout) || dup2(1, 2) < 0)
			_exit(126);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	fputs(child > 0 ? "ok\n" : "err 0 fork\n", out);
}

/* do_wait waits WAIT_MS at most and then kills the command, because rping may hang
 * in ibv_destroy_cq. */
static void do_wait(void)
{
	long long end = now_ms() + WAIT_MS;
	int status = 0, c, running;
	FILE *f;

	while ((running = waitpid(child, &status, WNOHANG) == 0) && now_ms() < end)
		usleep(10000);
	if (running) {
		kill(-child, SIGKILL);
		waitpid(child, &status, 0);
	}
	child = 0;
	fprintf(out, "ok %d ", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	f = fopen("/tmp/out", "r");
	while (f && (c = getc(f)) != EOF)
		putc(c == '\n' ? '|' : c, out);
	if (f)
		fclose(f);
	putc('\n', out);
}

static int inside(unsigned long long off, unsigned long long len)
{
	return off <= MEMORY && len <= MEMORY - off;
}

static void command(char *line)
{
	unsigned long long a = 0, off = 0, len = 0, raddr = 0;
	unsigned rkey = 0;
	char verb[16] = "", text[600] = "-";
	int n, skip, flags = 0;

	line[strcspn(line, "\n")] = 0;
	times = 1;
	if (sscanf(line, "times %d %n", &times, &skip) == 1)
		line += skip;
	sscanf(line, "%15s", verb);
	n = sscanf(line, "%*s %llu %llu %llu %llu %u", &a, &off, &len, &raddr, &rkey);
	if (!strcmp(verb, "listen"))
		do_listen(a);
	else if (!strcmp(verb, "open") && sscanf(line, "%*s %15s %d", text, &flags) == 2)
		do_open(text, flags);
	else if (!strcmp(verb, "request"))
		do_request();
	else if (!strcmp(verb, "listening"))
		do_listening(a);
	else if (!strcmp(verb, "spawn"))
		do_spawn(line + strlen("spawn "));
	else if (!strcmp(verb, "wait"))
		do_wait();
	else if (!strcmp(verb, "kill")) {
		if (child > 0) {
			kill(-child, SIGKILL);
			waitpid(child, NULL, 0);
			child = 0;
		}
		fputs("ok\n", out);
	} else if (!strcmp(verb, "event"))
		do_event(a);
	else if (!strcmp(verb, "close")) {
		close_all();
		fputs("ok\n", out);
	} else if (!strcmp(verb, "fill") && n >= 3 && inside(a, off)) {
		for (size_t i = 0; i < off; i++)
			memory[a + i] = i * 7 + (i >> 8) * 13 + len;
		fputs("ok\n", out);
	} else if (!strcmp(verb, "sum") && n >= 2 && inside(a, off))
		do_sum(a, off);
	else if (!id)
		fprintf(out, "err 0 no connection for: %s\n", line);
	else if (!strcmp(verb, "connect") && sscanf(line, "%*s %llu %599s", &a, text) == 2)
		do_join(rdma_connect, a, text);
	else if (!strcmp(verb, "accept") && sscanf(line, "%*s %llu %599s", &a, text) == 2)
		do_join(rdma_accept, a, text);
	else if (!strcmp(verb, "reject") && sscanf(line, "%*s %599s", text) == 1)
		do_reject(text);
	else if (!strcmp(verb, "disconnect")) {
		posted(rdma_disconnect(id) ? errno : 0);
	} else if (!strcmp(verb, "reg")) {
		if (!reg(a)) {
			put_memory();
			fputc('\n', out);
		}
	} else if (!strcmp(verb, "poll"))
		do_poll(a);
	else if (!strcmp(verb, "drain"))
		do_drain(a, off);
	else if (!strcmp(verb, "recv") && n >= 3)
		do_recv(a, off, len);
	else if (!strcmp(verb, "send") && n >= 4)
		do_send(IBV_WR_SEND, a, off, len, raddr, 0, 0);
	else if (!strcmp(verb, "write") && n == 5)
		do_send(IBV_WR_RDMA_WRITE, a, off, len, 0, raddr, rkey);
	else if (!strcmp(verb, "read") && n == 5)
		do_send(IBV_WR_RDMA_READ, a, off, len, 0, raddr, rkey);
	else
		fprintf(out, "err 0 bad command: %s\n", line);
}

/* dial makes the control connection. */
static int dial(const char *ip, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, ip, &a.sin_addr);
	/* rdma_cm picks ports without asking TCP. With SO_REUSEADDR siw can use this
	 * connection's port, too. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

int main(int argc, char **argv)
{
	char line[1024];
	FILE *in;
	int fd;

	if (argc != 3)
		return 2;
	fd = dial(argv[1], atoi(argv[2]));
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	channel = rdma_create_event_channel();
	if (fd < 0 || memory == MAP_FAILED || !channel) {
		perror("guest: start");
		return 1;
	}
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	fputs("ok ready\n", out);
	fflush(out);
	while (fgets(line, sizeof line, in) && strncmp(line, "quit", 4)) {
		command(line);
		fflush(out);
	}
	return 0;
}
