/*
 * roles.c ADDR ROLE [PEER PORT] - programs at two hosts:
 *
 *   target   says the port of b, lets peers write, and checks that a flag is never ahead of the data, until a line comes
 *   writer   writes data and then its flag at the target, until a line comes, and says how often
 *   twice    writes the same memory twice at the peer
 *   ordered  the same, in an order
 *   stuck    writes a second time when a line has come, and deregisters the memory
 *   parting  sends a message to the peer and closes its endpoint, while signals come, and says when twenty have
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <unistd.h>

#include "ends.h"

/* asked tells whether a line has come, and takes it. */
static bool asked(int ms)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	return poll(&in, 1, ms) == 1 && getchar() != EOF;
}

static fi_addr_t peer(const char *ip, const char *port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	fi_addr_t n;
	inet_pton(AF_INET, ip, &sa.sin_addr);
	SHALL(fi_av_insert(av, &sa, 1, &n, 0, NULL) == 1);
	return n;
}

/* The memory of the target: the flag, and from DATA on the data. Each round writes its number everywhere. */
enum { DATA = 512, HALF = 1 << 17, STEP = 500 };

/* check checks that the data at words is of round or, unless exact, of a later one. */
static void check(const volatile uint64_t *words, size_t count, uint64_t round, bool exact, const char *by)
{
	for (size_t i = 0; i < count; i += i + STEP < count || i == count - 1 ? STEP : count - 1 - i) {
		uint64_t got = words[i];
		if (got < round || (exact && got > round)) {
			fprintf(stderr, "round %llu: the data has %llu at word %zu (%s)\n", (unsigned long long)round,
				(unsigned long long)got, i, by);
			exit(1);
		}
	}
}

static void target(void)
{
	struct sockaddr_in sa;
	size_t len = sizeof sa;
	const volatile uint64_t *words = (const volatile uint64_t *)(void *)to;
	memset(to, 0, LONG);
	reg();
	MUST(fi_getname(&b.ep->fid, &sa, &len));
	printf("%d\n", ntohs(sa.sin_port));
	for (say("ready"); !asked(0);) {
		struct fi_cq_tagged_entry got;
		uint64_t flag = words[0];
		check(words + DATA, 2 * HALF, flag, false, "flag");
		if (fi_cq_read(b.cq, &got, 1) == 1)
			check(words + DATA, 2 * HALF, got.data, false, "CQ data");
	}
	unreg();
}

static void writer(fi_addr_t addr)
{
	uint64_t *words = (uint64_t *)(void *)from, *back = words + 2 * HALF;
	uint64_t round = 0;
	reg();
	for (say("ready"); !asked(0);) {
		int ends = 4;
		for (size_t i = 0; i < 2 * HALF; i++)
			words[i] = round + 1;
		round++;
		for (int i = 0; i < 2; i++)
			MUST(fi_write(a.ep, words + i * HALF, HALF * 8, NULL, addr, (size_t)(DATA + i * HALF) * 8, KEY_THEIRS, NULL));
		if (round % 2)
			MUST(fi_read(a.ep, back, FEW, NULL, addr, (DATA + HALF) * 8, KEY_THEIRS, NULL));
		if (round / 2 % 2)
			MUST(fi_writedata(a.ep, &round, 8, NULL, round, addr, 0, KEY_THEIRS, NULL));
		else
			MUST(fi_write(a.ep, &round, 8, NULL, addr, 0, KEY_THEIRS, NULL));
		if (!(round % 2))
			MUST(fi_read(a.ep, back, FEW, NULL, addr, (DATA + HALF) * 8, KEY_THEIRS, NULL));
		while (ends--)
			done(&a);
		check(back, FEW / 8, round, true, "read");
	}
	unreg();
	printf("%llu\n", (unsigned long long)round);
}

static void twice(fi_addr_t addr)
{
	reg();
	put(addr, 'x', FEW);
	put(addr, 'x', FEW);
	unreg();
	say("done");
}

static void stuck(fi_addr_t addr)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err = {0};
	reg();
	put(addr, 'x', FEW);
	say("ready");
	while (!asked(-1))
		;
	MUST(fi_write(a.ep, from, LONG, NULL, addr, 0, KEY_THEIRS, NULL));
	unreg();
	say("closed");
	if (fi_cq_sread(a.cq, &e, 1, NULL, WAIT_MS) != 1) /* it has an end */
		SHALL(fi_cq_readerr(a.cq, &err, 0) == 1);
	say("ended");
}

static void on_alarm(int signal)
{
	static const char line[] = "waits\n";
	static int signals;
	if (++signals == 20 && write(1, line, sizeof line - 1) < 0)
		_exit(1);
}

static void parting(fi_addr_t addr)
{
	struct sigaction act = {.sa_handler = on_alarm};
	struct itimerval each = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000}, never = {0};
	MUST(fi_inject(a.ep, from, 10, addr));
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	MUST(fi_close(&a.ep->fid));
	setitimer(ITIMER_REAL, &never, NULL);
	say("closed");
	exit(0);
}

int main(int argc, char **argv)
{
	const char *role = argc > 2 ? argv[2] : "";
	order = strcmp(role, "writer") && strcmp(role, "ordered") ? 0 : FI_ORDER_RMA_WAW | FI_ORDER_RMA_RAW;
	struct fi_info *info = offer(argc > 1 ? argv[1] : NULL);
	SHALL((info->tx_attr->msg_order & ~order) == (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW));
	open_all(info);
	fi_addr_t addr = argc > 4 && strcmp(role, "target") ? peer(argv[3], argv[4]) : FI_ADDR_UNSPEC;
	if (!strcmp(role, "target"))
		target();
	else if (!strcmp(role, "writer"))
		writer(addr);
	else if (!strcmp(role, "twice") || !strcmp(role, "ordered"))
		twice(addr);
	else if (!strcmp(role, "stuck"))
		stuck(addr);
	else
		parting(addr);
	leave(info);
	return 0;
}
