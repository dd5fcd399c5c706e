/* The driver's commands about what else a message can have. */

/* option_of finds the value of NAME=VALUE from word i on, or NULL. */
static const char *option_of(int i, const char *name)
{
	for (size_t n = strlen(name); i < words; i++)
		if (!strncmp(word[i], name, n) && word[i][n] == '=')
			return word[i] + n + 1;
	return NULL;
}

/* meant is the incarnation inc=N; inc=last is that of the last message's sender. */
static uint32_t meant(int i)
{
	const char *inc = option_of(i, "inc");
	return !inc ? 0 : !strcmp(inc, "last") ? last_inc : (uint32_t)strtoul(inc, NULL, 0);
}

static uint32_t give_up(int i)
{
	const char *ms = option_of(i, "giveup");
	return ms ? (uint32_t)strtoul(ms, NULL, 0) : 0;
}

/* cmd_sendmsg: sendmsg SOCK TO TEXT [giveup=MS] [inc=N] [notify=TOKEN] [cookie=REGION] [trace=TEXT] */
static void cmd_sendmsg(void)
{
	static char p[2 << 20];
	struct iovec iov = {p, payload(word[3], p, sizeof p)};
	struct rds_msg m = {.addr = address(2), .iov = &iov, .iovlen = 1, .flags = flags(4), .give_up_ms = give_up(4), .dst_inc = meant(4)};
	const char *token = option_of(4, "notify"), *region = option_of(4, "cookie");
	if (token) {
		m.flags |= RDS_NOTIFY;
		m.token = strtoull(token, NULL, 0);
	}
	m.traceparent = (char *)option_of(4, "trace");
	if (region)
		m.cookie = rds_region_cookie(get(region)->region);
	result(rds_sendmsg(sock(1), &m));
}

/* cmd_two: two SOCK TO REGION ROFF BUF OFF LEN AOFF ADD TEXT WRITE-FLAG ATOMIC-FLAG [giveup=MS]
 * [inc=N]. A message with a write of LEN bytes, and then a fetch-and-add whose old value goes to
 * the start of the buffer. Flags are notify, silent, both (of these two) or none. */
static void cmd_two(void)
{
	uint32_t f[2];
	for (int i = 0; i < 2; i++)
		f[i] = !strcmp(word[11 + i], "both") ? RDS_OP_NOTIFY | RDS_OP_SILENT : !strcmp(word[11 + i], "notify") ? RDS_OP_NOTIFY :
			!strcmp(word[11 + i], "silent") ? RDS_OP_SILENT : 0;
	struct rds_segment g = {get(word[5])->buf, (size_t)number(6), (size_t)number(7)};
	struct rds_rdma op = {.kind = RDS_OP_WRITE, .flags = f[0], .cookie = cookie(3), .remote_off = (uint64_t)number(4), .local = &g, .segments = 1, .token = 1};
	struct rds_atomic a = {.kind = RDS_OP_FETCH_ADD, .flags = f[1], .cookie = cookie(3), .remote_off = (uint64_t)number(8), .add = (uint64_t)number(9),
		.local = {get(word[5])->buf, 0, 8}, .token = 2};
	struct iovec iov = {word[10], strcmp(word[10], "-") ? strlen(word[10]) : 0};
	struct rds_msg m = {.addr = address(2), .iov = &iov, .iovlen = 1, .op = &op, .atomic = &a, .give_up_ms = give_up(13), .dst_inc = meant(13)};
	int err = rds_sendmsg(sock(1), &m);
	if (err)
		result(err);
	else
		say("op %" PRIu64 " atomic %" PRIu64, m.op_id, m.atomic_id);
}

/* cmd_masked: masked SOCK TO fadd|cas REGION ROFF A B M1 M2. M1 is no_carry, or compare_mask with
 * swap_mask in M2; "-" for M2 leaves masked out. */
static void cmd_masked(void)
{
	struct rds_addr to = address(2);
	uint64_t old = 0;
	struct rds_atomic a = atomic_of();
	a.no_carry = a.kind == RDS_OP_FETCH_ADD ? strtoull(word[8], NULL, 0) : 0;
	a.compare_mask = a.kind == RDS_OP_CMP_SWAP ? strtoull(word[8], NULL, 0) : 0;
	a.swap_mask = strcmp(word[9], "-") ? strtoull(word[9], NULL, 0) : 0;
	a.masked = strcmp(word[9], "-") != 0;
	int err = rds_atomic_op(sock(1), &to, &a, &old, NULL, 10000);
	if (err)
		result(err);
	else
		say("old 0x%" PRIx64, old);
}

/* cmd_refusal: the words about the last bind or close. */
static void cmd_refusal(void) { say("%s", rds_refusal()); }

/* cmd_reopen: reopen NEW OLD TIMEOUT */
static void cmd_reopen(void)
{
	rds_client *c;
	int err = rds_reopen(get(word[2])->client, (int)number(3), &c);
	if (!err) {
		rds_client_free(get(word[1])->client);
		get(word[1])->client = c;
	}
	result(err);
}

/* cmd_rebind: rebind NEW CLIENT OLD */
static void cmd_rebind(void)
{
	rds_socket *s;
	int err = rds_rebind(get(word[2])->client, sock(3), &s);
	if (!err) {
		rds_socket_free(get(word[1])->sock);
		get(word[1])->sock = s;
	}
	result(err);
}
