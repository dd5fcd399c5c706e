/* info.c - fi_getinfo: what the provider offers, and whether it is what was asked for. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fi.h"

enum { ADDRS_MAX = 64 };

static const uint64_t tx_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
static const uint64_t rx_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |
				FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA_EVENT;
static const uint64_t domain_caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
static const uint64_t orders = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW |
			       FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
static const uint64_t tx_op_flags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
static const uint64_t rx_op_flags = FI_COMPLETION | FI_MULTI_RECV;
enum { MR_BASIC = 1, MR_SCALABLE = 2 };
static const uint32_t own_protocol = 1u << 31 | 0x524453; /* a provider's own, as the top bit says */
static const size_t most = (size_t)1 << 40; /* bytes of a message or operation */

static bool tx_fits(const struct fi_tx_attr *h)
{
	return !h || (!(h->caps & ~(tx_caps | domain_caps | FI_RMA_EVENT)) && !(h->op_flags & ~tx_op_flags) && !(h->msg_order & ~orders) &&
		      !h->comp_order && h->inject_size <= INJECT_SIZE && h->size <= 65536 && h->iov_limit <= IOV_LIMIT && h->rma_iov_limit <= 1);
}

static bool rx_fits(const struct fi_rx_attr *h)
{
	return !h || (!(h->caps & ~(rx_caps | domain_caps)) && !(h->op_flags & ~rx_op_flags) && !(h->msg_order & ~orders) &&
		      !h->comp_order && h->size <= 65536 && h->iov_limit <= IOV_LIMIT);
}

static bool ep_fits(const struct fi_ep_attr *h)
{
	return !h || ((h->type == FI_EP_UNSPEC || h->type == FI_EP_RDM) && (!h->protocol || h->protocol == own_protocol) &&
		      h->protocol_version <= 1 && h->max_msg_size <= most && !h->msg_prefix_size && h->max_order_raw_size <= most &&
		      !h->max_order_war_size && h->max_order_waw_size <= most && (h->tx_ctx_cnt <= 1 || h->tx_ctx_cnt == FI_SHARED_CONTEXT) &&
		      h->tx_ctx_cnt != FI_SHARED_CONTEXT && h->rx_ctx_cnt <= 1 && !h->auth_key_size);
}

static bool domain_fits(const struct fi_domain_attr *h)
{
	return !h || (h->data_progress != FI_PROGRESS_AUTO && h->cq_data_size <= 8 && h->mr_key_size <= 8 && h->max_ep_tx_ctx <= 1 &&
		      h->max_ep_rx_ctx <= 1 && !h->max_ep_stx_ctx && !h->max_ep_srx_ctx && h->mr_iov_limit <= 1 &&
		      !(h->caps & ~domain_caps) && !h->auth_key_size && h->max_err_data == 0);
}

static bool fits(const struct fi_info *h)
{
	if (!h)
		return true;
	if (h->caps & ~(tx_caps | rx_caps | domain_caps)) {
		FI_INFO(&rfi_provider, FI_LOG_CORE, "not offered: capabilities %#llx\n", (unsigned long long)(h->caps & ~(tx_caps | rx_caps | domain_caps)));
		return false;
	}
	if (h->addr_format != FI_FORMAT_UNSPEC && h->addr_format != FI_SOCKADDR && h->addr_format != FI_SOCKADDR_IN && h->addr_format != FI_SOCKADDR_IN6) {
		FI_INFO(&rfi_provider, FI_LOG_CORE, "not offered: address format %u\n", h->addr_format);
		return false;
	}
	const char *what = !tx_fits(h->tx_attr) ? "tx_attr" : !rx_fits(h->rx_attr) ? "rx_attr" : !ep_fits(h->ep_attr) ? "ep_attr" :
			   !domain_fits(h->domain_attr) ? "domain_attr" : NULL;
	if (what)
		FI_INFO(&rfi_provider, FI_LOG_CORE, "not offered: an attribute of %s\n", what);
	return !what;
}

/* filled returns the capabilities that those asked for stand for. */
static uint64_t filled(uint64_t caps)
{
	if (!caps)
		return tx_caps | rx_caps | domain_caps;
	if (caps & (FI_MSG | FI_TAGGED) && !(caps & (FI_SEND | FI_RECV)))
		caps |= FI_SEND | FI_RECV;
	if (caps & (FI_RMA | FI_ATOMIC) && !(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		caps |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	return caps | domain_caps;
}

static void fill_ep(struct fi_info *info, const struct fi_info *h)
{
	*info->tx_attr = (struct fi_tx_attr){
		.caps = info->caps & tx_caps, .msg_order = orders, .inject_size = INJECT_SIZE,
		.size = h && h->tx_attr && h->tx_attr->size ? h->tx_attr->size : TX_SIZE, .iov_limit = IOV_LIMIT, .rma_iov_limit = 1,
		.op_flags = h && h->tx_attr ? h->tx_attr->op_flags : 0,
	};
	*info->rx_attr = (struct fi_rx_attr){
		.caps = info->caps & rx_caps, .msg_order = orders, .size = h && h->rx_attr && h->rx_attr->size ? h->rx_attr->size : RX_SIZE,
		.iov_limit = IOV_LIMIT, .op_flags = h && h->rx_attr ? h->rx_attr->op_flags : 0,
	};
	*info->ep_attr = (struct fi_ep_attr){
		.type = FI_EP_RDM, .protocol = own_protocol, .protocol_version = 1, .max_msg_size = most,
		.max_order_raw_size = most, .max_order_waw_size = most, .mem_tag_format = ~0ULL >> 1, .tx_ctx_cnt = 1, .rx_ctx_cnt = 1,
	};
	if (h && h->ep_attr && h->ep_attr->mem_tag_format)
		info->ep_attr->mem_tag_format = h->ep_attr->mem_tag_format;
}

static void fill_domain(struct fi_info *info, const struct fi_info *h)
{
	const struct fi_domain_attr *hd = h ? h->domain_attr : NULL;
	struct fi_domain_attr *d = info->domain_attr;
	d->domain = hd ? hd->domain : NULL;
	d->threading = FI_THREAD_SAFE;
	d->control_progress = hd && hd->control_progress ? hd->control_progress : FI_PROGRESS_AUTO;
	d->data_progress = FI_PROGRESS_MANUAL;
	d->resource_mgmt = FI_RM_ENABLED;
	d->av_type = hd ? hd->av_type : FI_AV_UNSPEC;
	d->mr_mode = !hd ? 0 : hd->mr_mode == MR_BASIC || hd->mr_mode == MR_SCALABLE ? hd->mr_mode :
		     hd->mr_mode & FI_MR_ALLOCATED; /* the others are not needed */
	d->mr_key_size = d->cq_data_size = 8;
	d->cq_cnt = d->cntr_cnt = d->mr_cnt = 65536;
	d->ep_cnt = d->tx_ctx_cnt = d->rx_ctx_cnt = 4096;
	d->max_ep_tx_ctx = d->max_ep_rx_ctx = d->mr_iov_limit = 1;
	d->caps = domain_caps;
}

static bool family_fits(const struct fi_info *h, int family)
{
	uint32_t want = h ? h->addr_format : FI_FORMAT_UNSPEC;
	return want == FI_FORMAT_UNSPEC || want == FI_SOCKADDR || want == (family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6);
}

static int set_addr(const struct rds_addr *addr, void **to, size_t *len)
{
	struct sockaddr_storage sa;
	*len = rds_addr_to(addr, &sa);
	*to = malloc(*len);
	if (!*to)
		return -FI_ENOMEM;
	memcpy(*to, &sa, *len);
	return 0;
}

/* host_text writes the address without the port, which is the name of a domain. */
static void host_text(const struct rds_addr *addr, char *text)
{
	struct sockaddr_storage sa;
	struct sockaddr_in *in = (void *)&sa;
	struct sockaddr_in6 *in6 = (void *)&sa;
	rds_addr_to(addr, &sa);
	inet_ntop(sa.ss_family, sa.ss_family == AF_INET ? (void *)&in->sin_addr : (void *)&in6->sin6_addr, text, RDS_ADDR_TEXT);
}

/* offer makes one fi_info for an address of the daemon. Either address may be NULL. */
static struct fi_info *offer(const struct fi_info *h, const struct rds_addr *src, const struct rds_addr *dest)
{
	struct fi_info *info = fi_allocinfo();
	char text[RDS_ADDR_TEXT] = "rdsd";
	if (!info)
		return NULL;
	info->caps = filled(h ? h->caps : 0);
	fill_ep(info, h);
	fill_domain(info, h);
	info->addr_format = FI_SOCKADDR_IN;
	info->fabric_attr->name = strdup("rdsd");
	info->fabric_attr->fabric = h && h->fabric_attr ? h->fabric_attr->fabric : NULL;
	info->fabric_attr->prov_version = FI_VERSION(1, 0);
	if (src) {
		struct sockaddr_storage sa;
		rds_addr_to(src, &sa);
		info->addr_format = sa.ss_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
		host_text(src, text);
	}
	info->domain_attr->name = strdup(text);
	if (!info->fabric_attr->name || !info->domain_attr->name || (src && set_addr(src, &info->src_addr, &info->src_addrlen)) ||
	    (dest && set_addr(dest, &info->dest_addr, &info->dest_addrlen))) {
		fi_freeinfo(info);
		return NULL;
	}
	return info;
}

static int family_of(const struct rds_addr *addr)
{
	struct sockaddr_storage sa;
	rds_addr_to(addr, &sa);
	return sa.ss_family;
}

static bool unspecified(const struct rds_addr *a)
{
	static const uint8_t zero[16], zero4[16] = {[10] = 0xff, [11] = 0xff};
	return !memcmp(a->ip, zero, 16) || !memcmp(a->ip, zero4, 16);
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

/* ends finds the two addresses that were asked for: at src the unspecified address for any. */
static int ends(const char *node, const char *service, uint64_t flags, const struct fi_info *h, struct rds_addr *src, struct rds_addr *dest, bool *has_dest)
{
	int family = h && h->addr_format == FI_SOCKADDR_IN6 ? AF_INET6 : h && h->addr_format == FI_SOCKADDR_IN ? AF_INET : AF_UNSPEC;
	int err = 0;
	memset(src, 0, sizeof *src);
	if (h && h->src_addr && rds_addr_from(h->src_addr, (socklen_t)h->src_addrlen, src))
		return -FI_ENODATA;
	if (h && h->dest_addr) {
		*has_dest = true;
		if (rds_addr_from(h->dest_addr, (socklen_t)h->dest_addrlen, dest))
			return -FI_ENODATA;
	}
	if ((node || service) && flags & FI_SOURCE)
		err = rfi_resolve(node, service, flags, family, src);
	else if (node || service) {
		*has_dest = true;
		err = rfi_resolve(node, service, flags, family, dest);
	}
	return err ? -FI_ENODATA : 0;
}

/* chosen tells whether the daemon's address at is one for the ends that were asked for. */
static bool chosen(const struct fi_info *h, const struct rds_addr *at, const struct rds_addr *src, const struct rds_addr *dest)
{
	char text[RDS_ADDR_TEXT];
	host_text(at, text);
	if (!unspecified(src) && memcmp(src->ip, at->ip, 16))
		return false;
	if (dest && family_of(dest) != family_of(at))
		return false;
	if (h && h->fabric_attr && h->fabric_attr->name && strcmp(h->fabric_attr->name, "rdsd"))
		return false;
	if (h && h->domain_attr && h->domain_attr->name && strcmp(h->domain_attr->name, text))
		return false;
	return family_fits(h, family_of(at));
}

/* host_addrs stores the daemon's addresses, which it asks for at most every two seconds. */
static ssize_t host_addrs(struct rds_addr *addrs)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct rds_addr known[ADDRS_MAX];
	static ssize_t count;
	static int64_t at;
	rds_client *client;
	pthread_mutex_lock(&lock);
	if (!at || rfi_now_ms() - at > 2000) {
		count = 0;
		if (!rfi_open_client(&client)) {
			count = rds_addrs(client, known, ADDRS_MAX);
			rds_client_free(client);
			at = rfi_now_ms();
		}
	}
	ssize_t n = count > ADDRS_MAX ? ADDRS_MAX : count;
	memcpy(addrs, known, sizeof known);
	pthread_mutex_unlock(&lock);
	return n;
}

int rfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *h, struct fi_info **info)
{
	struct rds_addr addrs[ADDRS_MAX], src, dest, route;
	struct fi_info *first = NULL, **last = &first;
	bool has_dest = false, routed;
	if (flags & FI_PROV_ATTR_ONLY)
		return (*info = offer(h, NULL, NULL)) ? 0 : -FI_ENOMEM;
	if (!fits(h) || ends(node, service, flags, h, &src, &dest, &has_dest))
		return -FI_ENODATA;
	ssize_t n = host_addrs(addrs);
	routed = has_dest && unspecified(&src) && from_route(&dest, &route);
	/* The address that the route to the destination has comes first. */
	for (int pass = 0; pass < 2; pass++)
		for (ssize_t i = 0; i < n; i++) {
			bool preferred = routed && !memcmp(route.ip, addrs[i].ip, 16);
			if (preferred != (pass == 0) || !chosen(h, &addrs[i], &src, has_dest ? &dest : NULL))
				continue;
			addrs[i].port = src.port;
			*last = offer(h, &addrs[i], has_dest ? &dest : NULL);
			if (!*last) {
				if (first)
					fi_freeinfo(first);
				return -FI_ENOMEM;
			}
			last = &(*last)->next;
		}
	*info = first;
	return first ? 0 : -FI_ENODATA;
}
