#include "segment.h"

#include "util.h"

enum { LINE = 128, PAGE = 4096 };

const char *rdsi_params_check(const struct shm_params *p)
{
	const struct { const char *name; uint32_t v; } rings[] = {
		{"SubEntries", p->sub_entries}, {"EventEntries", p->event_entries}, {"MaxMsgs", p->max_msgs}, {"MaxRx", p->max_rx}};
	for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
		uint32_t v = rings[i].v;
		if (v < 2 || v > SHM_MAX_RING_ENTRIES || (v & (v - 1)) != 0)
			return rings[i].name;
	}
	const struct { const char *name; uint32_t v, max; } sizes[] = {
		{"Slots", p->slots, SHM_MAX_TABLE}, {"Cells", p->cells, SHM_MAX_TABLE},
		{"SendWindows", p->send_windows, SHM_MAX_WINDOWS}, {"RecvWindows", p->recv_windows, SHM_MAX_WINDOWS}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i].v < 1 || sizes[i].v > sizes[i].max)
			return sizes[i].name;
	return NULL;
}

/* parts are the places of what depends on the parameters. */
struct parts {
	size_t sub, event, send_ret, recv_ret, want_cells, want_slots, size;
};

static size_t place(size_t *off, size_t n, size_t size)
{
	size_t at = *off;
	*off = rdsi_round_up(at + n * size, LINE);
	return at;
}

static struct parts parts_of(const struct shm_params *p)
{
	struct parts l;
	size_t off = PAGE;
	l.sub = place(&off, p->sub_entries, SHM_ENTRY_SIZE);
	l.event = place(&off, p->event_entries, SHM_ENTRY_SIZE);
	l.send_ret = place(&off, p->max_msgs, 4);
	l.recv_ret = place(&off, (size_t)SHM_RUN_STEPS * p->max_rx, 4);
	l.want_cells = place(&off, p->cells, sizeof(struct shm_want_cell));
	l.want_slots = place(&off, p->slots, sizeof(struct shm_want_slot));
	l.size = rdsi_round_up(off, PAGE);
	return l;
}

size_t rdsi_segment_size(const struct shm_params *p) { return parts_of(p).size; }

size_t rdsi_table_size(const struct shm_params *p)
{
	return rdsi_round_up(((size_t)p->slots + p->cells) * SHM_ENTRY_SIZE, PAGE);
}

static struct rdsi_ring ring_of(uint8_t *mem, size_t at, uint32_t size, uint32_t stride, size_t head, size_t tail)
{
	return (struct rdsi_ring){mem + at, size, stride, (rdsi_index *)(mem + head), (rdsi_index *)(mem + tail)};
}

const char *rdsi_segment_open(struct rdsi_segment *s, uint8_t *mem, size_t size, const struct shm_params *want)
{
	struct shm_params p;
	if (size < PAGE)
		return "the segment is too short";
	memcpy(&p, mem + SHM_OFF_PARAMS, sizeof p);
	struct parts l = parts_of(want);
	if (rdsi_get32(mem + SHM_OFF_MAGIC) != SHM_MAGIC || rdsi_get32(mem + SHM_OFF_VERSION) != SHM_VERSION)
		return "the segment is of another version";
	if (memcmp(&p, want, sizeof p) != 0)
		return "segment and hello differ";
	if (rdsi_get64(mem + SHM_OFF_SIZE) != l.size || size < l.size)
		return "the segment has another size than its parameters say";
	*s = (struct rdsi_segment){.params = *want};
	s->sub.ring = ring_of(mem, l.sub, want->sub_entries, SHM_ENTRY_SIZE, SHM_OFF_SUBMISSION_HEAD, SHM_OFF_SUBMISSION_TAIL);
	s->event.ring = ring_of(mem, l.event, want->event_entries, SHM_ENTRY_SIZE, SHM_OFF_EVENT_HEAD, SHM_OFF_EVENT_TAIL);
	s->send_ret.ring = ring_of(mem, l.send_ret, want->max_msgs, 4, SHM_OFF_SEND_RETURN_HEAD, SHM_OFF_SEND_RETURN_TAIL);
	s->recv_ret.ring = ring_of(mem, l.recv_ret, SHM_RUN_STEPS * want->max_rx, 4, SHM_OFF_RECEIVE_RETURN_HEAD, SHM_OFF_RECEIVE_RETURN_TAIL);
	s->daemon_asleep = (_Atomic uint32_t *)(mem + SHM_OFF_DAEMON_ASLEEP);
	s->client_asleep = (_Atomic uint32_t *)(mem + SHM_OFF_CLIENT_ASLEEP);
	s->want_cells = mem + l.want_cells;
	s->want_slots = mem + l.want_slots;
	return NULL;
}
