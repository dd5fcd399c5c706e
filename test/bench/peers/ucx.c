//go:build ucx

#include "ways.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { RING = 256, PIECE = 8192, TAG = 1 };

struct ucx {
	ucp_worker_h worker;
	ucp_ep_h ep;
	uint8_t *ring;      // RING receives of PIECE bytes
	void *posted[RING]; // their requests
	size_t next;        // the one that completes first
};

static const char *text(int error) { return ucs_status_string((ucs_status_t)error); }

static int meet(way *w, const void *name, size_t len) {
	struct ucx *u = w->of;
	ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = name};
	(void)len;
	return ucp_ep_create(u->worker, &p, &u->ep);
}

// end waits for a request, and returns how it ended.
static int end(struct ucx *u, ucs_status_ptr_t r) {
	ucs_status_t s;
	if (!UCS_PTR_IS_PTR(r))
		return UCS_PTR_STATUS(r);
	while ((s = ucp_request_check_status(r)) == UCS_INPROGRESS)
		if (!ucp_worker_progress(u->worker))
			sched_yield();
	ucp_request_free(r);
	return s;
}

static int post(struct ucx *u, size_t i) {
	ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
	ucs_status_ptr_t r = ucp_tag_recv_nbx(u->worker, u->ring + i * PIECE, PIECE, TAG, (ucp_tag_t)-1, &p);
	u->posted[i] = r;
	return UCS_PTR_IS_ERR(r) ? UCS_PTR_STATUS(r) : 0;
}

// receive takes the messages in the order in which they have come.
static int receive(way *w) {
	struct ucx *u = w->of;
	for (int n = 0;;) {
		ucp_tag_recv_info_t info = {0};
		ucs_status_t s = ucp_tag_recv_request_test(u->posted[u->next], &info);
		if (s == UCS_INPROGRESS) {
			if (n)
				return n;
			if (!ucp_worker_progress(u->worker))
				sched_yield();
			continue;
		}
		ucp_request_free(u->posted[u->next]);
		if (s != UCS_OK)
			return s;
		w->got = u->ring + u->next * PIECE;
		w->got_len = info.length;
		if ((s = post(u, u->next)) < 0)
			return s;
		u->next = (u->next + 1) % RING;
		if (++n == RING / 4)
			return n;
	}
}

static int transmit(way *w, const void *buf, size_t size) {
	struct ucx *u = w->of;
	ucp_request_param_t p = {0};
	return end(u, ucp_tag_send_nbx(u->ep, buf, size, TAG, &p));
}

int ucx_open(way *w) {
	struct ucx *u = calloc(1, sizeof *u);
	ucp_params_t cp = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_address_t *name;
	ucp_context_h context;
	ucs_status_t s;
	w->of = u;
	w->meet = meet;
	w->send = transmit;
	w->recv = receive;
	w->text = text;
	setenv("UCX_TLS", "tcp", 0);
	setenv("UCX_NET_DEVICES", "lo", 0);
	if (!u || !(u->ring = calloc(RING, PIECE)))
		return UCS_ERR_NO_MEMORY;
	if ((s = ucp_init(&cp, NULL, &context)) || (s = ucp_worker_create(context, &wp, &u->worker)) ||
		(s = ucp_worker_get_address(u->worker, &name, &w->name_len)))
		return s;
	if (w->name_len > sizeof w->name || w->name_len > PIECE || w->size > PIECE)
		return UCS_ERR_EXCEEDS_LIMIT;
	memcpy(w->name, name, w->name_len);
	for (size_t i = 0; i < RING && !s; i++)
		s = post(u, i);
	return s;
}
