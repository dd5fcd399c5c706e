/* The run of which a socket has not yet received all datagrams. */
#include "rx.h"

/* How long a run must be for parts of it to be given back. */
#define STEP_RUN (2u << 10)

/* quarter is after how many bytes a part of the run is given back. */
static size_t quarter(const struct rdsi_in_run *in) { return (in->ev.len + SHM_RUN_STEPS - 1) / SHM_RUN_STEPS; }

/* rdsi_run_begin makes e's run the one that is received from. */
int rdsi_run_begin(rds_socket *s, const struct shm_event *e)
{
	const uint8_t *p;
	int err = rdsi_payload(s->c, e, &p);
	if (!err && (e->len < FRAMES_HEAD || rdsi_frame_size(e->len - FRAMES_HEAD) != e->len))
		err = rdsi_broken(s->c, "run %u of %u bytes, which no frames have", e->rx_id, e->len);
	if (err)
		return err;
	s->in = (struct rdsi_in_run){.rest = p, .left = e->len, .ev = *e};
	if (e->len >= STEP_RUN)
		s->in.told = e->len - quarter(&s->in);
	return 0;
}

size_t rdsi_run_first(rds_socket *s, const uint8_t **p, size_t *n)
{
	struct rdsi_in_run *in = &s->in;
	size_t size = rdsi_frame_next(in->rest, in->left, n);
	if (!size)
		rdsi_broken(s->c, "run %u ends within a frame, with %zu bytes left", in->ev.rx_id, in->left);
	*p = in->rest + FRAMES_HEAD;
	return size;
}

void rdsi_run_pass(rds_socket *s, size_t size)
{
	struct rdsi_in_run *in = &s->in;
	in->rest += size;
	in->left -= size;
	if (in->left == 0) {
		rdsi_run_end(s);
		return;
	}
	for (; in->left <= in->told; in->told -= quarter(in))
		rdsi_give_back(s->c, in->ev.rx_id | SHM_RX_STEP);
}
