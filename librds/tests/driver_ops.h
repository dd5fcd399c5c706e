/* The driver's commands about buffers, regions and operations. */

static void cmd_alloc(void)
{
	rds_buffer_free(get(word[1])->buf);
	result(rds_alloc(get(word[2])->client, (size_t)number(3), &get(word[1])->buf));
}

/* cmd_import makes a memory file and imports a part of it: import BUF CLIENT SIZE SEALS OFF LEN.
 * With "file" for SEALS it is no memory. */
static void cmd_import(void)
{
	bool file = !strcmp(word[4], "file");
	int fd = file ? open("/dev/null", O_RDWR | O_CLOEXEC) : memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || (!file && (ftruncate(fd, number(3)) || fcntl(fd, F_ADD_SEALS, (int)number(4))))) {
		say("errno %d", errno);
		return;
	}
	rds_buffer *b;
	int err = rds_import(get(word[2])->client, fd, (uint64_t)number(5), (size_t)number(6), &b);
	close(fd);
	if (!err)
		rds_buffer_free(get(word[1])->buf), get(word[1])->buf = b;
	result(err);
}

static void cmd_free(void) { result(rds_buffer_close(get(word[1])->buf)); }
static void cmd_freewait(void) { result(rds_buffer_close_wait(get(word[1])->buf, (int)number(2))); }

/* cmd_poke stores a payload in a buffer: poke BUF OFF TEXT. */
static void cmd_poke(void)
{
	char *mem = rds_buffer_mem(get(word[1])->buf);
	if (!mem) {
		say("gone");
		return;
	}
	payload(word[3], mem + number(2), rds_buffer_size(get(word[1])->buf) - (size_t)number(2));
	say("ok");
}

/* cmd_show shows bytes of a buffer: show BUF OFF LEN. */
static void cmd_show(void)
{
	const char *mem = rds_buffer_mem(get(word[1])->buf);
	if (mem)
		say_bytes(mem + number(2), (size_t)number(3));
	else
		say("gone");
}

/* cmd_register: register REGION SOCK BUF OFF LEN RIGHTS. */
static void cmd_register(void)
{
	rds_region *r;
	int err = rds_register(sock(2), get(word[3])->buf, (size_t)number(4), (size_t)number(5), (unsigned)number(6), &r);
	if (!err)
		rds_region_free(get(word[1])->region), get(word[1])->region = r;
	result(err);
}

static void cmd_expose(void)
{
	struct rds_addr a;
	bool all = !strcmp(word[2], "-");
	if (!all)
		a = address(2);
	result(rds_expose(get(word[1])->region, all ? NULL : &a));
}

static void cmd_release(void) { result(rds_release(get(word[1])->region, 10000)); }

/* cookie of a region; a number is a cookie itself. */
static uint64_t cookie(int i)
{
	char *end;
	uint64_t v = strtoull(word[i], &end, 0);
	if (!*end)
		return v;
	return get(word[i])->region ? rds_region_cookie(get(word[i])->region) : 0;
}

static void cmd_sendcookie(void)
{
	struct iovec iov = {word[4], strlen(word[4])};
	struct rds_msg m = {.addr = address(2), .iov = &iov, .iovlen = 1, .cookie = cookie(3)};
	result(rds_sendmsg(sock(1), &m));
}

/* cmd_sendfrom: sendfrom SOCK TO BUF OFF LEN COOKIE. */
static void cmd_sendfrom(void)
{
	struct rds_msg m = {.addr = address(2), .flags = RDS_ZERO_COPY, .zero_copy_cookie = (uint32_t)number(6),
		.from = {get(word[3])->buf, (size_t)number(4), (size_t)number(5)}};
	result(rds_sendmsg(sock(1), &m));
}

static void cmd_zcdone(void)
{
	uint32_t c[16];
	ssize_t n = rds_zero_copy_done(sock(1), c, 16);
	say("%zd:", n);
	for (ssize_t i = 0; i < n; i++)
		say(" %u", c[i]);
}

/* op_flags reads notify, report, silent and owner. */
static uint32_t op_flags(int i)
{
	uint32_t f = 0;
	for (; i < words; i++)
		f |= !strcmp(word[i], "notify") ? RDS_OP_NOTIFY : !strcmp(word[i], "report") ? RDS_OP_REPORT : !strcmp(word[i], "silent") ? RDS_OP_SILENT :
			!strcmp(word[i], "owner") ? RDS_OP_OWNER : 0;
	return f;
}

/* segments cuts len bytes at off of a buffer into count segments. */
static void segments(struct rds_segment *g, rds_buffer *b, size_t off, size_t len, size_t count)
{
	for (size_t i = 0; i < count; i++)
		g[i] = (struct rds_segment){b, off + i * (len / count), i + 1 < count ? len / count : len - i * (len / count)};
}

/* cmd_rdma: rdma SOCK TO read|write REGION ROFF BUF OFF LEN SEGMENTS TEXT FLAGS... */
static void cmd_rdma(void)
{
	static struct rds_segment g[2000];
	size_t count = (size_t)number(9);
	segments(g, get(word[6])->buf, (size_t)number(7), (size_t)number(8), count);
	struct rds_rdma op = {.kind = !strcmp(word[3], "read") ? RDS_OP_READ : RDS_OP_WRITE, .flags = op_flags(11), .cookie = cookie(4),
		.remote_off = (uint64_t)number(5), .local = g, .segments = count, .token = 77};
	struct iovec iov = {word[10], strcmp(word[10], "-") ? strlen(word[10]) : 0};
	struct rds_msg m = {.addr = address(2), .iov = &iov, .iovlen = 1, .op = &op};
	int err = rds_sendmsg(sock(1), &m);
	if (err)
		result(err);
	else
		say("op %" PRIu64, m.op_id);
}

static struct rds_atomic atomic_of(void)
{
	bool add = !strcmp(word[3], "fadd");
	struct rds_atomic a = {.kind = add ? RDS_OP_FETCH_ADD : RDS_OP_CMP_SWAP, .cookie = cookie(4), .remote_off = (uint64_t)number(5), .token = 88};
	if (add) {
		a.add = (uint64_t)number(6);
	} else {
		a.compare = (uint64_t)number(6);
		a.swap = (uint64_t)number(7);
	}
	return a;
}

/* cmd_atomic: atomic SOCK TO fadd|cas REGION ROFF A B BUF OFF LEN FLAGS... */
static void cmd_atomic(void)
{
	struct rds_atomic a = atomic_of();
	a.local = (struct rds_segment){get(word[8])->buf, (size_t)number(9), (size_t)number(10)};
	a.flags = op_flags(11);
	struct rds_msg m = {.addr = address(2), .atomic = &a};
	int err = rds_sendmsg(sock(1), &m);
	if (err)
		result(err);
	else
		say("op %" PRIu64, m.atomic_id);
}

/* cmd_transfer: transfer SOCK TO read|write REGION ROFF BUF OFF LEN [FLAGS...] */
static void cmd_transfer(void)
{
	struct rds_segment g = {get(word[6])->buf, (size_t)number(7), (size_t)number(8)};
	struct rds_rdma op = {.kind = !strcmp(word[3], "read") ? RDS_OP_READ : RDS_OP_WRITE, .flags = op_flags(9), .cookie = cookie(4),
		.remote_off = (uint64_t)number(5), .local = &g, .segments = 1};
	struct rds_addr to = address(2);
	result(rds_transfer(sock(1), &to, &op, NULL, 10000));
}

/* synchronous runs fadd or cas: fadd SOCK TO - REGION ROFF A B */
static void synchronous(const char *kind)
{
	struct rds_addr to = address(2);
	uint64_t old = 0;
	word[3] = (char *)kind;
	struct rds_atomic a = atomic_of();
	int err = rds_atomic_op(sock(1), &to, &a, &old, NULL, 10000);
	if (err)
		result(err);
	else
		say("old %" PRIu64, old);
}

static void cmd_fadd(void) { synchronous("fadd"); }
static void cmd_cas(void) { synchronous("cas"); }

static void cmd_hwm(void)
{
	struct rds_addr to = address(2);
	uint64_t id = 0;
	int err = rds_hwm(sock(1), &to, &id);
	if (err)
		result(err);
	else
		say("%" PRIu64, id);
}

static void cmd_barrier(void)
{
	struct rds_addr to = address(2);
	result(rds_barrier(sock(1), &to, (uint64_t)number(3), 10000));
}

static void cmd_barrierall(void) { result(rds_barrier_all(sock(1), 10000)); }

static void say_completion(const struct rds_completion *c)
{
	say("token %" PRIu64 " id %" PRIu64 " ", c->token, c->id);
	say_addr(&c->to);
	say(" %s %s", name_of(statuses, c->status), c->err ? name_of(errnos, c->err) : "-");
}

static void cmd_waitop(void)
{
	struct rds_addr to = address(2);
	struct rds_completion c;
	int err = rds_wait_op(sock(1), &to, (uint64_t)number(3), &c, 10000);
	if (err)
		result(err);
	else
		say_completion(&c);
}

static void cmd_completions(void)
{
	struct rds_completion c[16];
	ssize_t n = rds_completions(sock(1), c, 16);
	say("%zd:", n);
	for (ssize_t i = 0; i < n; i++) {
		say(" ");
		say_completion(&c[i]);
	}
}
