/*
 * The driver of the conformance test: it reads commands on stdin, carries each out with librds
 * and prints one line for each. player_test.go does the same with package rds, and the test
 * compares the answers. Clients, sockets, buffers and regions have names in the script.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#include "names.h"

enum { WORDS = 64, LINE = 1 << 16 };

/* A thing of the script. */
struct thing {
	char name[32];
	rds_client *client;
	rds_socket *sock;
	rds_buffer *buf;
	rds_region *region;
	struct thing *next;
};

static struct thing *things;
static char *word[WORDS]; /* of the command, by itself in 0 */
static int words;
static char out[4 * LINE];

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
	size_t n = strlen(out);
	va_list ap;
	va_start(ap, format);
	vsnprintf(out + n, sizeof out - n, format, ap);
	va_end(ap);
}

static void say_error(int64_t err)
{
	say("error %s", name_of(errnos, -err));
	if (!strcmp(name_of(errnos, -err), "?"))
		say(" %" PRId64, -err);
}

/* result says ok or the error. */
static void result(int64_t err)
{
	if (err < 0)
		say_error(err);
	else
		say("ok");
}

static struct thing *get(const char *name)
{
	struct thing *t = things;
	while (t && strcmp(t->name, name))
		t = t->next;
	if (!t) {
		t = calloc(1, sizeof *t);
		snprintf(t->name, sizeof t->name, "%s", name);
		t->next = things;
		things = t;
	}
	return t;
}

static rds_socket *sock(int i) { return get(word[i])->sock; }

static int64_t number(int i) { return i < words ? strtoll(word[i], NULL, 0) : 0; }

/* address reads an address; "-" stands for none. */
static struct rds_addr address(int i)
{
	struct rds_addr a = {0};
	if (strcmp(word[i], "-") && rds_addr_parse(word[i], &a))
		say("bad address %s ", word[i]);
	return a;
}

static void say_addr(const struct rds_addr *a)
{
	static const struct rds_addr none;
	char text[RDS_ADDR_TEXT];
	if (!memcmp(a->ip, none.ip, sizeof a->ip))
		say("-");
	else
		say("%s", rds_addr_format(a, text, sizeof text));
}

/* payload is the bytes that a word stands for: itself, or with "#n" n bytes of a pattern. */
static size_t payload(const char *w, char *p, size_t size)
{
	size_t n = w[0] == '#' ? strtoul(w + 1, NULL, 0) : strlen(w);
	if (n > size)
		n = size;
	for (size_t i = 0; i < n; i++)
		p[i] = w[0] == '#' ? (char)('a' + i % 26) : w[i];
	return n;
}

/* say_bytes says short payloads as they are, long ones by length and sum. */
static void say_bytes(const char *p, size_t n)
{
	uint32_t sum = 0;
	if (n <= 64) {
		say("%.*s", (int)n, p);
		return;
	}
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + (uint8_t)p[i];
	say("%zu bytes %u", n, sum);
}

static void cmd_open(void)
{
	struct rds_options o = {.path = word[2], .timeout_ms = 10000, .params.slots = (uint32_t)number(3)};
	rds_client_free(get(word[1])->client);
	result(rds_open(&o, &get(word[1])->client));
}

static void cmd_error(void)
{
	int err = rds_client_error(get(word[1])->client, NULL, 0);
	for (int i = 0; i < 1000 && !err && number(2); i++) { /* until there is one */
		poll(NULL, 0, 10);
		err = rds_client_error(get(word[1])->client, NULL, 0);
	}
	result(err);
}

static void cmd_closeclient(void) { result(rds_client_close(get(word[1])->client)); }

static void cmd_bind(void)
{
	struct rds_addr a = address(3);
	rds_socket *s;
	int err = rds_bind(get(word[2])->client, &a, &s);
	if (!err) {
		rds_set_option(s, RDS_OPT_RCVTIMEO, 10000); /* a message that does not come is an answer, too */
		rds_socket_free(get(word[1])->sock);
		get(word[1])->sock = s;
	}
	result(err);
}

static void cmd_addrs(void)
{
	struct rds_addr a[8];
	ssize_t n = rds_addrs(get(word[1])->client, a, 8);
	if (n < 0)
		result(n);
	for (ssize_t i = 0; i < n; i++) {
		say(" ");
		say_addr(&a[i]);
	}
}

static void cmd_local(void)
{
	struct rds_addr a;
	rds_local(sock(1), &a);
	say_addr(&a);
}

static void cmd_connect(void)
{
	struct rds_addr a = address(2);
	result(rds_connect(sock(1), &a));
}

static void cmd_close(void) { result(rds_close(sock(1))); }
static void cmd_closewait(void) { result(rds_close_wait(sock(1), (int)number(2))); }

static void cmd_set(void) { result(rds_set_option(sock(1), (enum rds_option)value_of(options, word[2]), number(3))); }

static void cmd_get(void)
{
	int64_t v = 0;
	int err = rds_get_option(sock(1), (enum rds_option)value_of(options, word[2]), &v);
	if (err)
		result(err);
	else
		say("%" PRId64, v);
}

/* flags reads flags from word i on. */
static unsigned flags(int i)
{
	unsigned f = 0;
	for (; i < words; i++)
		f |= !strcmp(word[i], "dontwait") ? RDS_DONTWAIT : !strcmp(word[i], "peek") ? RDS_PEEK : 0;
	return f;
}

static void cmd_send(void)
{
	static char p[2 << 20];
	struct rds_addr to = address(2);
	ssize_t n = rds_send(sock(1), p, payload(word[3], p, sizeof p), &to, flags(4));
	if (n < 0)
		result(n);
	else
		say("%zd", n);
}

/* cmd_fill sends until the destination is congested, as the daemon says it is. */
static void cmd_fill(void)
{
	static char p[1 << 20];
	struct rds_addr to = address(2);
	size_t len = payload(word[3], p, sizeof p);
	ssize_t n = 0;
	for (int i = 0; i < 100000 && (n >= 0 || n == -EAGAIN); i++) {
		n = rds_send(sock(1), p, len, &to, RDS_DONTWAIT);
		if (n == -EAGAIN)
			poll(NULL, 0, 1);
	}
	result(n);
}

static void cmd_sendmsgs(void)
{
	struct rds_msg m[WORDS] = {0};
	struct iovec iov[WORDS];
	static char p[WORDS][4096];
	for (int i = 3; i < words; i++) {
		iov[i] = (struct iovec){p[i], payload(word[i], p[i], sizeof p[i])};
		m[i - 3] = (struct rds_msg){.addr = address(2), .iov = &iov[i], .iovlen = 1};
	}
	ssize_t n = rds_sendmsgs(sock(1), m, (size_t)(words - 3));
	if (n < 0)
		result(n);
	else
		say("%zd", n);
}

static void say_msg(const struct rds_msg *m)
{
	say("[");
	say_bytes(m->iov->iov_base, m->n);
	say("] from ");
	say_addr(&m->addr);
	say(" n %zu len %zu%s%s%s", m->n, m->len, m->flags & RDS_TRUNC ? " truncated" : "", m->cookie ? " cookie" : "", m->src_inc ? " inc" : "");
	if (*m->traceparent)
		say(" of %s", m->traceparent);
}

static uint32_t last_inc; /* of the sender of the last message that recv returned */

static void cmd_recv(void)
{
	static char p[2 << 20];
	struct iovec iov = {p, words > 2 && number(2) ? (size_t)number(2) : sizeof p};
	char trace[RDS_TRACEPARENT_SIZE] = "";
	struct rds_msg m = {.iov = &iov, .iovlen = 1, .flags = flags(2), .traceparent = trace};
	int err = rds_recvmsg(sock(1), &m);
	if (err) {
		result(err);
		return;
	}
	say_msg(&m);
	last_inc = m.src_inc;
}

/* cmd_recvall receives count messages with rds_recvmsgs. */
static void cmd_recvall(void)
{
	struct rds_msg m[WORDS] = {0};
	struct iovec iov[WORDS];
	static char p[WORDS][4096], trace[WORDS][RDS_TRACEPARENT_SIZE];
	for (int64_t want = number(2), got = 0; got < want;) {
		for (int i = 0; i < WORDS; i++) {
			iov[i] = (struct iovec){p[i], sizeof p[i]};
			m[i] = (struct rds_msg){.iov = &iov[i], .iovlen = 1, .traceparent = trace[i]};
		}
		ssize_t n = rds_recvmsgs(sock(1), m, want - got < WORDS ? (size_t)(want - got) : WORDS);
		if (n < 0) {
			result(n);
			return;
		}
		for (int i = 0; i < n; i++, got++)
			say_msg(&m[i]);
	}
}

/* cmd_drain receives until nothing has come for 100 ms. */
static void cmd_drain(void)
{
	struct rds_until u = {.socket = sock(1), .kind = RDS_UNTIL_MESSAGE};
	static char p[1 << 20];
	while (rds_wait(&u, 1, 100) > 0 && rds_recv(sock(1), p, sizeof p, NULL, RDS_DONTWAIT) >= 0)
		;
	say("ok");
}

static void cmd_cancel(void)
{
	struct rds_addr a = address(2);
	result(rds_cancel(sock(1), &a));
}

static void cmd_closedest(void)
{
	struct rds_addr a = address(2);
	result(rds_close_dest(sock(1), &a));
}

#include "driver_ops.h"
#include "driver_wait.h"
#include "driver_more.h"

static const struct { const char *name; void (*run)(void); } commands[] = {
	{"open", cmd_open}, {"error", cmd_error}, {"closeclient", cmd_closeclient}, {"bind", cmd_bind}, {"local", cmd_local}, {"addrs", cmd_addrs},
	{"connect", cmd_connect}, {"close", cmd_close}, {"closewait", cmd_closewait}, {"set", cmd_set}, {"get", cmd_get},
	{"send", cmd_send}, {"fill", cmd_fill}, {"sendmsgs", cmd_sendmsgs}, {"recv", cmd_recv}, {"recvall", cmd_recvall}, {"drain", cmd_drain},
	{"cancel", cmd_cancel}, {"closedest", cmd_closedest}, {"alloc", cmd_alloc}, {"import", cmd_import}, {"poke", cmd_poke}, {"show", cmd_show},
	{"free", cmd_free}, {"freewait", cmd_freewait}, {"register", cmd_register}, {"expose", cmd_expose}, {"release", cmd_release},
	{"sendcookie", cmd_sendcookie}, {"sendfrom", cmd_sendfrom}, {"zcdone", cmd_zcdone}, {"rdma", cmd_rdma}, {"atomic", cmd_atomic},
	{"transfer", cmd_transfer}, {"fadd", cmd_fadd}, {"cas", cmd_cas}, {"hwm", cmd_hwm}, {"barrier", cmd_barrier},
	{"barrierall", cmd_barrierall}, {"waitop", cmd_waitop}, {"completions", cmd_completions}, {"notices", cmd_notices},
	{"cong", cmd_cong}, {"wait", cmd_wait}, {"pollset", cmd_pollset}, {"polled", cmd_polled}, {"fd", cmd_fd}, {"sendmsg", cmd_sendmsg},
	{"two", cmd_two}, {"masked", cmd_masked}, {"reopen", cmd_reopen}, {"rebind", cmd_rebind}, {"refusal", cmd_refusal},
};

static void run(void)
{
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		if (!strcmp(commands[i].name, word[0])) {
			commands[i].run();
			return;
		}
	}
	say("no command %s", word[0]);
}

int main(void)
{
	static char line[LINE];
	while (fgets(line, sizeof line, stdin)) {
		words = 0;
		for (char *w = strtok(line, " \n"); w && words < WORDS - 1; w = strtok(NULL, " \n"))
			word[words++] = w;
		word[words] = "";
		out[0] = 0;
		if (words)
			run();
		puts(out);
		fflush(stdout);
	}
	for (struct thing *t = things, *next; t; t = next) {
		next = t->next;
		rds_region_free(t->region);
		rds_buffer_free(t->buf);
		rds_socket_free(t->sock);
		rds_client_free(t->client);
		free(t);
	}
	return 0;
}
