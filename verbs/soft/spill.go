package soft

// spill decides what I/O threads have with Options.Spill: of the queue pairs that move bulk the owner keeps one. It
// counts them by the last payload in large frames. Owner only.
type spill struct {
	left        int // bytes of this round
	round       uint32
	now, before int // queue pairs of this round, and of the one before
}

// roundBytes is how much payload in large frames a round has.
const roundBytes = 2 << 20

// share is what a queue pair owes the owner in a direction: so many bytes of it the owner moves before a thread
// has more.
type share struct{ owes int }

// carries notes that the owner handles a frame of q with n bytes of payload, or takes as much back from a thread.
func (q *qp) carries(n int) {
	if n >= asideMin {
		q.dev.threads.carried(q, n)
	}
}

func (t *threads) carried(q *qp, n int) {
	if t == nil || t.spill == nil {
		return
	}
	s := t.spill
	if s.left -= n; s.left < 0 {
		s.left = roundBytes
		s.round++
		s.before, s.now = s.now, 0
		for _, j := range t.jobs {
			if j.q != nil {
				s.count(j.q)
			}
		}
	}
	s.count(q)
}

func (s *spill) count(q *qp) {
	if q.round != s.round {
		q.round = s.round
		s.now++
	}
}

// most returns how many queue pairs may be with threads.
func (s *spill) most() int { return max(s.now, s.before) - 1 }

// lends reports whether a thread may have more of one whose share is sh, beside so many jobs.
func (s *spill) lends(sh *share, jobs int) bool { return sh.owes <= 0 && jobs < s.most() }

// lent notes that one of so many threads has moved n bytes. The owner does as much as each of them.
func (sh *share) lent(s *spill, n, threads int) {
	if s != nil {
		sh.owes = n / max(min(threads, s.most()), 1)
	}
}
