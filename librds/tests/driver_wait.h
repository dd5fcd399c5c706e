/* The driver's commands about waiting, notices and congestion. */

static void cmd_notices(void)
{
	struct rds_notice n[16];
	ssize_t count = rds_notices(sock(1), n, 16);
	say("%zd:", count);
	for (ssize_t i = 0; i < count; i++) {
		say(" %s ", name_of(notices, n[i].kind));
		say_addr(&n[i].to);
		say(" %" PRIu64 " reason %u", n[i].count, n[i].reason);
	}
}

static void cmd_cong(void)
{
	uint64_t mask = 0;
	rds_cong_updates(sock(1), &mask);
	say("0x%" PRIx64, mask);
}

/* until_of reads conditions from word i on: NAME or NAME=ADDR or NAME=ADDR/ID. */
static size_t until_of(struct rds_until *u, int i)
{
	size_t n = 0;
	for (; i < words; i++, n++) {
		char *arg = strchr(word[i], '='), *id = arg ? strchr(arg, '/') : NULL;
		u[n] = (struct rds_until){.socket = sock(1)};
		if (id) {
			*id = 0;
			u[n].id = strtoull(id + 1, NULL, 0);
		}
		if (arg) {
			*arg = 0;
			if (rds_addr_parse(arg + 1, &u[n].addr))
				say("bad address %s ", arg + 1);
		}
		u[n].kind = (uint32_t)value_of(conditions, word[i]);
	}
	return n;
}

static void say_ready(const struct rds_until *u, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (u[i].ready)
			say(" %s", name_of(conditions, u[i].kind));
}

/* cmd_wait: wait SOCK TIMEOUT CONDITION... */
static void cmd_wait(void)
{
	struct rds_until u[WORDS];
	size_t count = until_of(u, 3);
	int n = rds_wait(u, count, (int)number(2));
	if (n < 0) {
		result(n);
		return;
	}
	say("ready:");
	say_ready(u, count);
}

static void cmd_pollset(void)
{
	struct rds_until u[WORDS];
	size_t count = until_of(u, 2);
	result(rds_poll_set(sock(1), u, count));
}

static void cmd_polled(void)
{
	struct rds_until u[WORDS];
	int n = rds_polled(sock(1), u, WORDS);
	if (n < 0) {
		result(n);
		return;
	}
	say("ready:");
	say_ready(u, (size_t)n);
}

/* cmd_fd: fd SOCK TIMEOUT: whether the poll descriptor is readable. */
static void cmd_fd(void)
{
	int fd = rds_pollfd(sock(1));
	if (fd < 0) {
		result(fd);
		return;
	}
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n = poll(&p, 1, (int)number(2));
	say("%s", n == 1 && p.revents & POLLIN ? "readable" : "not readable");
}
