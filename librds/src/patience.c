/* How the leader waits. */
#include "patience.h"

enum {
	BATCH = 16,
	FIRST_REST = 128,  /* waits between two trials, at first */
	MOST_REST = 2048,  /* it doubles with each trial that changes nothing */
	SMOOTH = 4,        /* a mean moves by this part of what a batch differs from it */
	GAIN = 80,         /* percent that looking has to come down to, to be taken instead of blocking */
	HOLD = 10,         /* percent: looking is kept although it gains so much less */
	SLOW_YIELD = 700 * 1000, /* ns: who got the processor used up its time slice */
	PAUSE = 50 * 1000000,    /* ns for which nobody yields then */
	LONGEST = 4,       /* windows, above which a wait says nothing about how to wait */
	MAX_VAIN = 4       /* such waits in a row end all looking, until one is short again */
};

void rdsi_patience_init(struct rdsi_patience *p, enum rds_way strategy, int64_t window)
{
	const int64_t most = INT64_MAX / (2 * LONGEST);
	*p = (struct rdsi_patience){.strategy = window > 0 ? strategy : RDS_WAIT_BLOCK, .window = window < most ? window : most, .ways.rest = FIRST_REST};
}

/* decide ends a trial. */
static void decide(struct rdsi_ways *y)
{
	int64_t use = y->mean[y->look], try = y->mean[!y->look];
	bool change = y->look ? use * 100 > try * (GAIN + HOLD) : try * 100 < use * GAIN;
	if (change) {
		y->look = !y->look;
		y->rest = FIRST_REST;
	} else {
		y->rest = 2 * y->rest < MOST_REST ? 2 * y->rest : MOST_REST;
	}
	y->left = y->rest;
}

/* took notes a wait of d ns that went the way that is measured. */
static void took(struct rdsi_ways *y, int64_t d)
{
	y->sum += d;
	if (++y->n < BATCH)
		return;
	int64_t *mean = &y->mean[y->look != y->trial], batch = y->sum / BATCH > 1 ? y->sum / BATCH : 1;
	*mean += *mean ? (batch - *mean) / SMOOTH : batch;
	y->sum = 0;
	y->n = 0;
	if (y->trial) {
		y->trial = false;
		decide(y);
	} else if ((y->left -= BATCH) <= 0) {
		y->trial = true;
	}
}

static void begin(struct rdsi_patience *p, int64_t now)
{
	p->since = now;
	p->slow = false;
	p->measured = p->strategy == RDS_WAIT_AUTO && p->vain < MAX_VAIN && now >= p->until;
	p->looks = p->strategy != RDS_WAIT_AUTO || (p->measured && p->ways.look != p->ways.trial);
}

/* back ends the yield that rdsi_next asked for. */
static void back(struct rdsi_patience *p, int64_t now)
{
	if (p->yielded && p->strategy == RDS_WAIT_AUTO && now - p->last > SLOW_YIELD) {
		p->until = now + PAUSE;
		p->looks = false;
		p->slow = true;
	}
	p->yielded = false;
}

enum rds_way rdsi_next(struct rdsi_patience *p, int64_t now)
{
	if (p->strategy == RDS_WAIT_BLOCK)
		return RDS_WAIT_BLOCK;
	if (p->since == 0)
		begin(p, now);
	else
		back(p, now);
	p->last = now;
	if (!p->looks || now - p->since >= p->window)
		return RDS_WAIT_BLOCK;
	if (p->strategy == RDS_WAIT_SPIN)
		return RDS_WAIT_SPIN;
	p->yielded = true;
	return RDS_WAIT_YIELD;
}

void rdsi_over(struct rdsi_patience *p, int64_t now)
{
	if (p->since == 0)
		return;
	back(p, now);
	int64_t d = now - p->since, most = LONGEST * p->window;
	p->since = 0;
	if (p->slow) {
		took(&p->ways, most);
	} else if (d >= most) {
		p->vain += p->vain < MAX_VAIN;
	} else if (p->vain < MAX_VAIN || d < 2 * p->window) {
		p->vain = 0;
		if (p->measured)
			took(&p->ways, d);
	}
}
