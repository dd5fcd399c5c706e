/*
 * driven.c ADDR - two endpoints of one process, of which b does what the lines of the standard input say. It says its port
 * and the size of its queue, then answers each line with one. While it waits for a line it makes progress.
 *
 *   know PORT      a peer at ADDR, which the lines that follow are about, is in the address vector
 *   recv TAG       posts a receive
 *   send TAG LEN   sends a message to the peer
 *   inject TAG LEN sends one that is complete at once
 *   read           reads memory of the peer
 *   peek TAG       waits until the message has come, and leaves it
 *   done           waits for a completion: says its tag, length and error
 *   poll           the same with the queue's descriptor
 *   count          reads all completions: says how many
 *   hold           makes no progress until it is to go
 *   go
 *   self           a message of a to b arrives
 *   busy           exchanges messages with a until there is an error, and says it
 *   late TAG LEN   sends a message when the descriptor is to be polled, and then polls as poll does
 *   end            closes everything
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>

#include "ends.h"

static fi_addr_t peer;
static bool held;

static void answer(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	say("");
}

static void know(unsigned port)
{
	struct sockaddr_storage sa;
	size_t len = sizeof sa;
	MUST(fi_av_lookup(av, b.addr, &sa, &len));
	((struct sockaddr_in *)(void *)&sa)->sin_port = htons((uint16_t)port);
	SHALL(fi_av_insert(av, &sa, 1, &peer, 0, NULL) == 1);
}

/* take reads a completion or error, and says what it was. */
static ssize_t take(void)
{
	struct fi_cq_tagged_entry got;
	struct fi_cq_err_entry err = {0};
	ssize_t n = fi_cq_read(b.cq, &got, 1);
	if (n == 1)
		answer("%llu %zu 0", (unsigned long long)got.tag, got.len);
	else if (n == -FI_EAVAIL && fi_cq_readerr(b.cq, &err, 0) == 1)
		answer("%llu %zu %d", (unsigned long long)err.tag, err.len, err.err);
	return n;
}

/* wait_done waits for a completion at the descriptor alone, or in a call. */
static void wait_done(bool descriptor)
{
	struct fid *fid = &b.cq->fid;
	int fd;
	MUST(fi_control(fid, FI_GETWAIT, &fd));
	while (take() == -FI_EAGAIN) {
		struct fi_cq_tagged_entry none;
		if (!descriptor)
			fi_cq_sread(b.cq, &none, 0, NULL, -1);
		else if (fi_trywait(fabric, &fid, 1) == 0)
			poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
	}
}

static void peek(uint64_t tag)
{
	struct fi_msg_tagged m = {.addr = FI_ADDR_UNSPEC, .tag = tag, .context = &m};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	for (ssize_t n = 0; n != 1;) {
		MUST(fi_trecvmsg(b.ep, &m, FI_PEEK));
		while ((n = fi_cq_read(b.cq, &e, 1)) == -FI_EAGAIN)
			;
		SHALL(n == 1 || (fi_cq_readerr(b.cq, &err, 0) == 1 && err.err == FI_ENOMSG));
	}
	answer("here");
}

static void self(void)
{
	MUST(fi_trecv(b.ep, to, 10, NULL, a.addr, ~0ULL, 0, NULL));
	MUST(fi_tsend(a.ep, from, 10, NULL, b.addr, ~0ULL, NULL));
	SHALL(done(&b).tag == ~0ULL);
	done(&a);
	answer("arrived");
}

static void count(void)
{
	struct fi_cq_tagged_entry e;
	int n = 0;
	while (fi_cq_read(b.cq, &e, 1) == 1)
		n++;
	answer("%d", n);
}

/* late: what a program sends between its look and its poll goes out, too. */
static void late(uint64_t tag, size_t len)
{
	struct fid *fid = &b.cq->fid;
	int fd;
	MUST(fi_control(fid, FI_GETWAIT, &fd));
	while (fi_trywait(fabric, &fid, 1))
		;
	MUST(fi_tsend(b.ep, from, len, NULL, peer, tag, NULL));
	answer("sent");
	poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
	wait_done(true);
}

/* busy: b always has something to receive, and more than it takes at once. */
static void busy(void)
{
	enum { AHEAD = 2000, ROUND = 64 };
	struct fi_cq_tagged_entry e;
	ssize_t n = 0;
	for (int i = 0; n != -FI_EAVAIL; i++) {
		while (fi_tinject(a.ep, from, 1, b.addr, ~0ULL) == -FI_EAGAIN)
			fi_cq_read(b.cq, &e, 0);
		if (i < AHEAD)
			continue;
		ssize_t err = fi_trecv(b.ep, to, 1, NULL, a.addr, ~0ULL, 0, NULL);
		SHALL(!err || err == -FI_EAGAIN); /* as many as may be posted are ahead of the messages */
		for (int k = 0; i % ROUND == 0 && k < ROUND && n != -FI_EAVAIL; k++)
			n = fi_cq_read(b.cq, &e, 1);
	}
	take();
}

/* obey carries out a line. */
static void obey(const char *word, unsigned long long x, unsigned long long y)
{
#define IS(name) (!strcmp(word, name))
	if (IS("peek"))
		peek(x);
	else if (IS("done") || IS("poll"))
		wait_done(IS("poll"));
	else if (IS("count"))
		count();
	else if (IS("self"))
		self();
	else if (IS("busy"))
		busy();
	else if (IS("late"))
		late(x, y);
	else {
		if (IS("know"))
			know((unsigned)x);
		else if (IS("recv"))
			MUST(fi_trecv(b.ep, to, LONG, NULL, FI_ADDR_UNSPEC, x, 0, NULL));
		else if (IS("send"))
			MUST(fi_tsend(b.ep, from, y, NULL, peer, x, NULL));
		else if (IS("inject"))
			MUST(fi_tinject(b.ep, from, y, peer, x));
		else if (IS("read"))
			MUST(fi_read(b.ep, to, 8, NULL, peer, 0, 1, NULL));
		else
			SHALL((held = IS("hold")) || IS("go"));
		answer("ok");
	}
}

int main(int argc, char **argv)
{
	struct fi_info *info = offer(argv[argc - 1]);
	struct sockaddr_storage sa;
	struct fi_cq_tagged_entry e;
	struct pollfd in = {.events = POLLIN};
	struct fid_mr *mr;
	size_t len = sizeof sa;
	char line[100], word[20];
	way = FI_WAIT_FD;
	setvbuf(stdin, NULL, _IONBF, 0);
	open_all(info);
	MUST(fi_mr_reg(domain, to, 8, FI_REMOTE_WRITE, 0, 2, 0, &mr, NULL));
	MUST(fi_av_lookup(av, b.addr, &sa, &len));
	answer("%d %zu", ntohs(((struct sockaddr_in *)(void *)&sa)->sin_port), b.size);
	for (;;) {
		unsigned long long x = 0, y = 0;
		while (!poll(&in, 1, held ? -1 : 0))
			fi_cq_read(b.cq, &e, 0);
		SHALL(fgets(line, sizeof line, stdin) && sscanf(line, "%19s %llu %llu", word, &x, &y) > 0);
		if (!strcmp(word, "end"))
			break;
		obey(word, x, y);
	}
	MUST(fi_close(&mr->fid));
	leave(info);
	return 0;
}
