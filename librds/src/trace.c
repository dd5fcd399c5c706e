/* Traceparents: the trace that a message belongs to. In the arenas it is 26 bytes behind the payload. */
#include "trace.h"

#include <string.h>

/* digit is the value of a lower-case hexadecimal digit, or -1. */
static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* dash reports whether a dash is ahead of byte i in the text. */
static bool dash(size_t i) { return i == 1 || i == 17 || i == 25; }

/* zeros reports whether n bytes are 0. */
static bool zeros(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

int rdsi_trace_parse(const char *text, uint8_t *p)
{
	for (size_t i = 0; i < SHM_TRACEPARENT_LEN; i++) {
		if (dash(i) && *text++ != '-')
			return -EINVAL;
		int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
		if (low < 0)
			return -EINVAL;
		p[i] = (uint8_t)(high << 4 | low);
		text += 2;
	}
	return *text || p[0] == 0xff || zeros(p + 1, 16) || zeros(p + 17, 8) ? -EINVAL : 0;
}

void rdsi_trace_text(char *text, const uint8_t *p)
{
	for (size_t i = 0; p && i < SHM_TRACEPARENT_LEN; i++) {
		if (dash(i))
			*text++ = '-';
		*text++ = "0123456789abcdef"[p[i] >> 4];
		*text++ = "0123456789abcdef"[p[i] & 15];
	}
	*text = 0;
}

size_t rdsi_trace_tail(const struct rds_msg *m, size_t len)
{
	return m && rdsi_traced(m) && len <= RDS_MAX_MESSAGE - SHM_TRACEPARENT_LEN ? SHM_TRACEPARENT_LEN : 0;
}

int rdsi_trace_find(rds_client *c, const struct shm_event *e, const uint8_t **p)
{
	*p = NULL;
	if (!(e->flags & SHM_EVENT_TRACEPARENT))
		return 0;
	const uint32_t units = SHM_WINDOW_SIZE / SHM_UNIT;
	if (e->flags & SHM_EVENT_RUN || !rdsi_chunk_valid(c->rx.nwindows, e->chunk, (size_t)e->len + SHM_TRACEPARENT_LEN))
		return rdsi_broken(c, "traceparent of message %u of %u bytes at chunk %u is outside the receive arena", e->rx_id, e->len, e->chunk);
	*p = c->rx.windows[e->chunk / units] + (size_t)(e->chunk % units) * SHM_UNIT + e->len;
	return 0;
}
