/* How the leader waits: it looks again and again, or it blocks at once, as was measured to be
 * shorter. Go's internal/wait decides the same, and TestPatience compares the two. */
#ifndef RDSI_PATIENCE_H
#define RDSI_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "rds/rds.h"

/* rdsi_ways compares waits that look with those that block at once, by how long they last. A
 * batch of waits goes one way; after some that went the way in use, one goes the other way, on
 * trial. */
struct rdsi_ways {
	bool look;       /* the way in use */
	bool trial;      /* the present batch goes the other way */
	int64_t sum;     /* ns of the present batch */
	int n;           /* waits of it */
	int left;        /* waits until the next trial */
	int rest;        /* waits between two trials */
	int64_t mean[2]; /* ns of a wait that blocked, and that looked; 0: not known */
};

/* rdsi_patience belongs to the leader. Times are ns of one clock that is never 0. A wait goes
 * from the first rdsi_next to rdsi_over. */
struct rdsi_patience {
	enum rds_way strategy;
	int64_t window; /* how long a wait looks */
	struct rdsi_ways ways;
	int64_t since;  /* start of the wait, 0: there is none */
	int64_t last;   /* the last rdsi_next */
	int64_t until;  /* before that nobody yields */
	int vain;       /* waits in a row that were too long */
	bool looks;     /* this wait looks for the window */
	bool measured;  /* it goes the way that is being measured */
	bool slow;      /* it had a slow yield */
	bool yielded;   /* since last */
};

/* rdsi_patience_init makes p wait by strategy, and look for window ns. */
void rdsi_patience_init(struct rdsi_patience *p, enum rds_way strategy, int64_t window);

/* rdsi_next is what to do after a look that found nothing: yield, spin or block. */
enum rds_way rdsi_next(struct rdsi_patience *p, int64_t now);

/* rdsi_over ends the wait, if there is one. */
void rdsi_over(struct rdsi_patience *p, int64_t now);

#endif
