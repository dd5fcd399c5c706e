/* info.c - fi_getinfo: what the provider offers, and whether it is what was asked for. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fi.h"

enum { ADDRS_MAX = 64, QUEUE_MAX = 65536, MR_BASIC = 1, KNOWN_MS = 2000 };

#define OWN_PROTOCOL (1u << 31 | 0x524453)  /* a provider's own, as the top bit says */
#define BOTH_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC)
#define DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define RECV_CAPS (FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define RX_CAPS (BOTH_CAPS | RECV_CAPS | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA_EVENT)
#define SEND_CAPS (FI_SEND | FI_READ | FI_WRITE)
#define TX_CAPS (BOTH_CAPS | SEND_CAPS)
#define ORDERS                                                                                             \
	(RMA_ORDERS | FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)

/* The most that there is of each attribute. */
static const struct fi_tx_attr tx_most = {
	.caps = TX_CAPS, .msg_order = ORDERS, .inject_size = INJECT_SIZE, .size = QUEUE_MAX, .iov_limit = IOV_LIMIT,
	.rma_iov_limit = 1,
	.op_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE,
};
static const struct fi_rx_attr rx_most = {
	.caps = RX_CAPS, .msg_order = ORDERS, .size = QUEUE_MAX, .iov_limit = IOV_LIMIT,
	.op_flags = FI_COMPLETION | FI_MULTI_RECV,
};
static const struct fi_ep_attr ep_most = {
	.type = FI_EP_RDM, .protocol = OWN_PROTOCOL, .protocol_version = 1, .max_msg_size = LONGEST,
	.max_order_raw_size = LONGEST, .max_order_waw_size = LONGEST,
	.mem_tag_format = ~0ULL >> 1, .tx_ctx_cnt = 1, .rx_ctx_cnt = 1,
};
static const struct fi_domain_attr domain_most = {
	.threading = FI_THREAD_SAFE, .control_progress = FI_PROGRESS_AUTO, .data_progress = FI_PROGRESS_MANUAL,
	.resource_mgmt = FI_RM_ENABLED, .mr_key_size = 8, .cq_data_size = 8, .cq_cnt = 65536, .cntr_cnt = 65536,
	.mr_cnt = 65536, .ep_cnt = 4096, .tx_ctx_cnt = 4096, .rx_ctx_cnt = 4096, .max_ep_tx_ctx = 1, .max_ep_rx_ctx = 1,
	.mr_iov_limit = 1, .caps = DOMAIN_CAPS,
};

/* OVER and OTHER tell that a number or bits of the hints are not among what there is. */
#define OVER(h, most, field) ((h)->field > (most).field)
#define OTHER(h, most, field) ((h)->field & ~(most).field)

static bool tx_unfit(const struct fi_tx_attr *h)
{
	return h->caps & ~(TX_CAPS | DOMAIN_CAPS | FI_RMA_EVENT) || OTHER(h, tx_most, op_flags) ||
	       OTHER(h, tx_most, msg_order) || h->comp_order || OVER(h, tx_most, inject_size) || OVER(h, tx_most, size) ||
	       OVER(h, tx_most, iov_limit) || OVER(h, tx_most, rma_iov_limit);
}

static bool rx_unfit(const struct fi_rx_attr *h)
{
	return h->caps & ~(RX_CAPS | DOMAIN_CAPS) || OTHER(h, rx_most, op_flags) || OTHER(h, rx_most, msg_order) ||
	       h->comp_order || OVER(h, rx_most, size) || OVER(h, rx_most, iov_limit);
}

static bool ep_unfit(const struct fi_ep_attr *h)
{
	return (h->type && h->type != FI_EP_RDM) || (h->protocol && h->protocol != OWN_PROTOCOL) || h->msg_prefix_size ||
	       OVER(h, ep_most, protocol_version) || OVER(h, ep_most, max_msg_size) || h->max_order_war_size ||
	       OVER(h, ep_most, max_order_raw_size) || OVER(h, ep_most, max_order_waw_size) ||
	       OVER(h, ep_most, tx_ctx_cnt) || OVER(h, ep_most, rx_ctx_cnt) || h->auth_key_size;
}

static bool domain_unfit(const struct fi_domain_attr *h)
{
	return h->data_progress == FI_PROGRESS_AUTO || OVER(h, domain_most, cq_data_size) || h->mr_mode & MR_BASIC ||
	       OVER(h, domain_most, mr_key_size) || OVER(h, domain_most, max_ep_tx_ctx) || h->auth_key_size ||
	       OVER(h, domain_most, max_ep_rx_ctx) || h->max_ep_stx_ctx || h->max_ep_srx_ctx ||
	       OVER(h, domain_most, mr_iov_limit) || OTHER(h, domain_most, caps) || h->max_err_data;
}

/* fits tells whether there is what the hints ask for. */
static bool fits(const struct fi_info *h)
{
	const char *what = h->caps & ~(TX_CAPS | RX_CAPS | DOMAIN_CAPS)      ? "caps" :
			   h->addr_format > FI_SOCKADDR_IN6                   ? "addr_format" :
			   h->tx_attr && tx_unfit(h->tx_attr)             ? "tx_attr" :
			   h->rx_attr && rx_unfit(h->rx_attr)             ? "rx_attr" :
			   h->ep_attr && ep_unfit(h->ep_attr)             ? "ep_attr" :
			   h->domain_attr && domain_unfit(h->domain_attr) ? "domain_attr" : NULL;
	if (what)
		FI_INFO(&rfi_provider, FI_LOG_CORE, "not offered: what the hints have as %s\n", what);
	return !what;
}

/* ---- Addresses ---- */

static bool is_v4(const struct rds_addr *a)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return !memcmp(a->ip, mapped, sizeof mapped);
}

static bool unspecified(const struct rds_addr *a)
{
	static const uint8_t zero[16];
	return is_v4(a) ? !memcmp(a->ip + 12, zero, 4) : !memcmp(a->ip, zero, 16);
}

static void *sockaddr_of(const struct rds_addr *addr, size_t *len)
{
	struct sockaddr_storage *sa = calloc(1, sizeof *sa);
	if (sa)
		*len = rds_addr_to(addr, sa);
	return sa;
}

/* from_route stores the address that the kernel would send from to dest. */
static bool from_route(const struct rds_addr *dest, struct rds_addr *src)
{
	struct sockaddr_storage sa;
	struct rds_addr to = *dest;
	to.port = to.port ? to.port : 9;
	socklen_t len = rds_addr_to(&to, &sa);
	int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && !connect(fd, (struct sockaddr *)&sa, len);
	len = sizeof sa;
	ok = ok && !getsockname(fd, (struct sockaddr *)&sa, &len) && !rds_addr_from((struct sockaddr *)&sa, len, src);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* host_addrs stores the daemon's addresses, and asks for them every two seconds at most: programs try many hints. */
static ssize_t host_addrs(struct rds_addr *addrs)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct rds_addr known[ADDRS_MAX];
	static ssize_t count;
	static int64_t until;
	rds_client *client;
	pthread_mutex_lock(&lock);
	if (rfi_now_ms() >= until)
		count = 0;
	if (!count && !rfi_open_client(&client)) {
		count = rds_addrs(client, known, ADDRS_MAX);
		rds_client_free(client);
		until = rfi_now_ms() + KNOWN_MS;
	}
	ssize_t n = count > ADDRS_MAX ? ADDRS_MAX : count;
	memcpy(addrs, known, sizeof known);
	pthread_mutex_unlock(&lock);
	return n;
}

/* An asked is the two addresses that the program wants: at src the unspecified address for any. */
struct asked {
	struct rds_addr src, dest;
	bool has_dest;
};

/* name_of writes the name of the domain at an address of the daemon. */
static const char *name_of(const struct rds_addr *at, char *text)
{
	return inet_ntop(is_v4(at) ? AF_INET : AF_INET6, at->ip + (is_v4(at) ? 12 : 0), text, RDS_ADDR_TEXT);
}

/* chosen tells whether the daemon's address at is one that was asked for. */
static bool chosen(const struct fi_info *h, const struct rds_addr *at, const struct asked *a)
{
	char text[RDS_ADDR_TEXT];
	uint32_t format = is_v4(at) ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	if (!unspecified(&a->src) && memcmp(a->src.ip, at->ip, 16))
		return false;
	if (a->has_dest && is_v4(&a->dest) != is_v4(at))
		return false;
	if (h->fabric_attr && h->fabric_attr->name && strcmp(h->fabric_attr->name, "rdsd"))
		return false;
	if (h->domain_attr && h->domain_attr->name && strcmp(h->domain_attr->name, name_of(at, text)))
		return false;
	return h->addr_format == FI_FORMAT_UNSPEC || h->addr_format == FI_SOCKADDR || h->addr_format == format;
}

/* ask stores what the program wants: of a node with several addresses one that goes with one of the daemon's n. */
static int ask(const char *node, const char *service, uint64_t flags, const struct fi_info *h,
	       const struct rds_addr *addrs, ssize_t n, struct asked *a)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
	bool named = node || service, source = flags & FI_SOURCE, fit = false;
	hints.ai_flags = (flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0) | (source ? AI_PASSIVE : 0);
	*a = (struct asked){.has_dest = h->dest_addr || (named && !source)};
	if ((h->src_addr && rds_addr_from(h->src_addr, (socklen_t)h->src_addrlen, &a->src)) ||
	    (h->dest_addr && rds_addr_from(h->dest_addr, (socklen_t)h->dest_addrlen, &a->dest)) ||
	    (named && getaddrinfo(node, service, &hints, &found)))
		return -FI_ENODATA;
	for (struct addrinfo *f = named ? found : NULL; f && !fit; f = f->ai_next)
		if (!rds_addr_from(f->ai_addr, f->ai_addrlen, source ? &a->src : &a->dest))
			for (ssize_t i = 0; i < n && !fit; i++)
				fit = chosen(h, &addrs[i], a);
	if (named)
		freeaddrinfo(found);
	return named && !fit ? -FI_ENODATA : 0;
}

/* ---- Offers ---- */

/* HINT takes what the hints say of something that is the program's choice. */
#define HINT(attr, field) (info->attr->field = h->attr && h->attr->field ? h->attr->field : info->attr->field)

static void take_hints(struct fi_info *info, const struct fi_info *h)
{
	HINT(tx_attr, op_flags);
	HINT(tx_attr, size);
	HINT(rx_attr, op_flags);
	HINT(rx_attr, size);
	HINT(ep_attr, mem_tag_format);
	HINT(fabric_attr, fabric);
	HINT(domain_attr, domain);
	HINT(domain_attr, av_type);
	HINT(domain_attr, control_progress);
	HINT(domain_attr, threading);
	if (h->domain_attr)
		info->domain_attr->mr_mode = h->domain_attr->mr_mode & FI_MR_ALLOCATED; /* no other is needed */
}

/* offer makes one fi_info for an address of the daemon, called name. src: NULL for any. */
static struct fi_info *offer(const struct fi_info *h, const struct rds_addr *src, const char *name, struct asked *a)
{
	struct fi_info *info = fi_allocinfo();
	if (!info)
		return NULL;
	info->caps = h->caps ? h->caps | SEND_CAPS | RECV_CAPS | DOMAIN_CAPS : TX_CAPS | RX_CAPS | DOMAIN_CAPS;
	info->addr_format = !src || is_v4(src) ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
	*info->tx_attr = tx_most;
	*info->rx_attr = rx_most;
	*info->ep_attr = ep_most;
	*info->domain_attr = domain_most;
	info->tx_attr->caps &= info->caps;
	info->rx_attr->caps &= info->caps;
	info->tx_attr->size = TX_SIZE;
	info->rx_attr->size = RX_SIZE;
	info->tx_attr->op_flags = info->rx_attr->op_flags = 0;
	uint64_t asked = (h->tx_attr ? h->tx_attr->msg_order : 0) | (h->rx_attr ? h->rx_attr->msg_order : 0);
	info->tx_attr->msg_order = info->rx_attr->msg_order = asked | (ORDERS & ~RMA_ORDERS); /* those cost direct operations */
	take_hints(info, h);
	info->fabric_attr->prov_version = FI_VERSION(1, 0);
	info->fabric_attr->name = strdup("rdsd");
	info->domain_attr->name = strdup(name);
	if (src)
		info->src_addr = sockaddr_of(src, &info->src_addrlen);
	if (src && a->has_dest)
		info->dest_addr = sockaddr_of(&a->dest, &info->dest_addrlen);
	bool all = info->fabric_attr->name && info->domain_attr->name;
	if (all && (!src || info->src_addr) && (!src || !a->has_dest || info->dest_addr))
		return info;
	fi_freeinfo(info);
	return NULL;
}

int rfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *h,
		struct fi_info **info)
{
	static const struct fi_info none;
	struct rds_addr addrs[ADDRS_MAX], route;
	struct fi_info *first = NULL, **last = &first;
	struct asked a;
	h = h ? h : &none;
	if (flags & FI_PROV_ATTR_ONLY)
		return (*info = offer(h, NULL, "rdsd", NULL)) ? 0 : -FI_ENOMEM;
	if (!fits(h))
		return -FI_ENODATA;
	ssize_t n = host_addrs(addrs);
	bool fit = !ask(node, service, flags, h, addrs, n, &a);
	bool routed = fit && a.has_dest && unspecified(&a.src) && from_route(&a.dest, &route);
	/* The address that the route to the destination has comes first. */
	for (int pass = 0; fit && pass < 2; pass++)
		for (ssize_t i = 0; i < n; i++) {
			char text[RDS_ADDR_TEXT];
			if ((routed && !memcmp(route.ip, addrs[i].ip, 16)) != (pass == 0) || !chosen(h, &addrs[i], &a))
				continue;
			addrs[i].port = a.src.port;
			*last = offer(h, &addrs[i], name_of(&addrs[i], text), &a);
			if (!*last) {
				fi_freeinfo(first);
				return -FI_ENOMEM;
			}
			last = &(*last)->next;
		}
	if (!first)
		FI_INFO(&rfi_provider, FI_LOG_CORE, "not offered: none of the daemon's %zd addresses is what was asked for\n", n);
	*info = first;
	return first ? 0 : -FI_ENODATA;
}
