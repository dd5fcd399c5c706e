/* rds_open: hello to the daemon, and the memory that comes with its answer. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "int.h"
#include "tx.h"
#include "rx.h"

enum { SOCKET_PATH = 256 }; /* more than a path may have, so that a long one is refused where it is dialled */
#define SYSTEM_SOCKET "/run/rdsd/rdsd.sock"
/* The smallest submission ring: what opening a destination and a message need at once. */
#define MIN_SUB 8

uint64_t rdsi_netns(void)
{
	struct stat st;
	return stat("/proc/thread-self/ns/net", &st) ? 0 : st.st_ino;
}

int rdsi_path(char *to, size_t size, const char *path, uint64_t net)
{
	for (const char *mark; (mark = strstr(path, "%n")); path = mark + 2) {
		int n = snprintf(to, size, "%.*s%llu", (int)(mark - path), path, (unsigned long long)net);
		if (n < 0 || (size_t)n >= size)
			return -ENAMETOOLONG;
		to += n;
		size -= (size_t)n;
	}
	if (strlen(path) >= size)
		return -ENAMETOOLONG;
	memcpy(to, path, strlen(path) + 1);
	return 0;
}

/* dial_one tries a path. *tried says that the next one is worth a try. */
static int dial_one(struct rdsi_ctl *ctl, const char *path, int64_t deadline)
{
	int err = rdsi_ctl_dial(ctl, path, deadline);
	return err == -ECONNREFUSED ? -ENOENT : err;
}

/* nobody has rds_refusal name the paths that were tried, if err says that no daemon answers. */
static int nobody(int err, const char *path, const char *other)
{
	char text[512];
	if (err != -ENOENT)
		return err;
	int n = snprintf(text, sizeof text, "no RDS daemon answers at %s%s%s: start rdsd, or name its control socket in RDSD_SOCKET or where the client is opened",
			 path, other ? " or " : "", other ? other : "");
	rdsi_refused(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
	return err;
}

/* rdsi_dial connects to the daemon: at path, or at the first default path where one answers. */
int rdsi_dial(struct rdsi_ctl *ctl, const char *path, int64_t deadline)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char user[128];
	if (!path || !*path)
		path = getenv("RDSD_SOCKET");
	if (path && *path) {
		char named[SOCKET_PATH];
		int err = rdsi_path(named, sizeof named, path, strstr(path, "%n") ? rdsi_netns() : 0);
		return err ? err : nobody(dial_one(ctl, named, deadline), named, NULL);
	}
	bool own = dir && *dir && geteuid() != 0 && (size_t)snprintf(user, sizeof user, "%s/rdsd.sock", dir) < sizeof user;
	int err = own ? dial_one(ctl, user, deadline) : -ENOENT;
	if (err != -ENOENT)
		return err;
	return nobody(dial_one(ctl, SYSTEM_SOCKET, deadline), SYSTEM_SOCKET, own ? user : NULL);
}

/* fill returns the parameters with defaults for zero fields. */
static struct shm_params fill(const struct rds_params *o)
{
	struct shm_params p = {SHM_DEFAULT_SUB_ENTRIES, SHM_DEFAULT_EVENT_ENTRIES, SHM_DEFAULT_MAX_MSGS, SHM_DEFAULT_MAX_RX,
		SHM_DEFAULT_SLOTS, SHM_DEFAULT_CELLS, SHM_DEFAULT_SEND_WINDOWS, SHM_DEFAULT_RECV_WINDOWS};
	uint32_t *to[] = {&p.sub_entries, &p.event_entries, &p.max_msgs, &p.max_rx, &p.slots, &p.cells, &p.send_windows, &p.recv_windows};
	const uint32_t from[] = {o->sub_entries, o->event_entries, o->max_msgs, o->max_rx, o->slots, o->cells, o->send_windows, o->recv_windows};
	for (size_t i = 0; i < sizeof from / sizeof *from; i++)
		if (from[i])
			*to[i] = from[i];
	if (p.sub_entries < MIN_SUB)
		p.sub_entries = MIN_SUB;
	return p;
}

/* put_hello writes the body of Hello. */
static void put_hello(struct rdsi_call *call, const struct rds_options *o)
{
	struct shm_params p = fill(&o->params);
	const char *name = o->name ? o->name : program_invocation_short_name;
	uint8_t *b = call->body;
	b = rdsi_put32(b, IPC_MAGIC);
	b = rdsi_put32(b, IPC_VERSION);
	b = rdsi_put64(b, IPC_FEATURES);
	b = rdsi_put32(b, IPC_ROLE_CLIENT);
	memcpy(b, name, strnlen(name, IPC_MAX_NAME));
	b += IPC_MAX_NAME;
	memcpy(b, &p, sizeof p);
	call->len = (uint32_t)(b + sizeof p - call->body);
}

/* map_windows maps count windows of one direction. */
static int map_windows(rds_client *c, const int *fds, uint32_t count, bool send)
{
	for (uint32_t i = 0; i < count; i++) {
		struct rdsi_mapping m;
		int err = rdsi_map(fds[i], SHM_WINDOW_SIZE, send, false, &m);
		if (!err)
			err = rdsi_add_window(c, m);
		if (err)
			return err;
		if (send)
			err = rdsi_arena_add(&c->tx.arena, m.mem);
		else
			c->rx.windows[c->rx.nwindows++] = m.mem;
		if (err)
			return err;
	}
	return 0;
}

/* map_all maps the segment, the table and the windows, in the order of their descriptors. */
static int map_all(rds_client *c, const struct shm_params *p, const int *fds)
{
	int err = rdsi_map(fds[0], rdsi_segment_size(p), true, false, &c->segment);
	if (err)
		return err;
	if (rdsi_segment_open(&c->seg, c->segment.mem, c->segment.size, p))
		return -EPROTONOSUPPORT;
	if ((err = rdsi_map(fds[1], rdsi_table_size(p), false, false, &c->table)))
		return err;
	c->seg.table = c->table.mem;
	if ((err = rdsi_tx_init(c)) || (err = rdsi_rx_init(c)))
		return err;
	if ((err = map_windows(c, fds + 4, p->send_windows, true)))
		return err;
	return map_windows(c, fds + 4 + p->send_windows, p->recv_windows, false);
}

/* take_bells takes over the doorbells' descriptors. */
static int take_bells(rds_client *c, int *fds)
{
	c->self = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->self < 0)
		return -errno;
	c->daemon_bell = fds[2];
	c->bell = fds[3];
	fds[2] = fds[3] = -1;
	return 0;
}

/* hello says hello and sets up the shared memory. */
static int hello(rds_client *c, const struct rds_options *o, int64_t deadline)
{
	struct rdsi_call *call = rdsi_call_new(IPC_HELLO, IPC_HELLO_OK);
	if (!call)
		return -ENOMEM;
	put_hello(call, o);
	int err = rdsi_call_run(c, call, deadline);
	if (err == RDSI_LATE)
		return -ETIMEDOUT;
	struct shm_params p;
	const uint8_t *b = call->body;
	if (!err && rdsi_get32(b) != IPC_VERSION)
		err = -EPROTONOSUPPORT;
	if (!err) {
		memcpy(&p, b + 52, sizeof p);
		if (rdsi_params_check(&p) || p.sub_entries < MIN_SUB || (uint32_t)call->nfds != 4 + p.send_windows + p.recv_windows)
			err = -EPROTONOSUPPORT;
	}
	if (!err)
		err = map_all(c, &p, call->fds);
	if (!err)
		err = take_bells(c, call->fds);
	if (!err) {
		uint64_t spin = rdsi_get64(b + 44);
		c->tx.asks = rdsi_get64(b + 4) & IPC_FEATURE_REFUSES;
		c->tx.tells = rdsi_get64(b + 4) & IPC_FEATURE_NOTIFY;
		c->tx.anybody = rdsi_get64(b + 4) & IPC_FEATURE_ANYBODY;
		c->tells_addrs = rdsi_get64(b + 4) & IPC_FEATURE_ADDRS;
		c->imports = rdsi_get64(b + 4) & IPC_FEATURE_IMPORT;
		int64_t window = o->spin_ns ? o->spin_ns : spin < 1000000000 ? (int64_t)spin : 0;
		rdsi_patience_init(&c->patience, o->wait, window < 1000 ? 0 : window); /* not worth a system call */
	}
	rdsi_call_end(call);
	return err;
}

int rds_open(const struct rds_options *options, rds_client **client)
{
	struct rds_options o = {0};
	if (options)
		o = *options;
	*client = NULL;
	rdsi_refused("", 0);
	if (o.wait > RDS_WAIT_SPIN)
		return -EINVAL;
	rds_client *c;
	int err = rdsi_client_new(&c);
	if (err)
		return err;
	int64_t deadline = o.timeout_ms > 0 ? rdsi_deadline(o.timeout_ms) : RDSI_NEVER;
	err = rdsi_keep_options(c, &o);
	if (!err && !(err = rdsi_dial(&c->ctl, o.path, deadline)))
		err = hello(c, &o, deadline);
	if (err) {
		rds_client_free(c);
		return err;
	}
	c->ctl.call_timeout_ms = o.call_timeout_ms;
	pthread_mutex_lock(&c->ctl.mu);
	c->ctl.opened = true;
	pthread_mutex_unlock(&c->ctl.mu);
	*client = c;
	return 0;
}
