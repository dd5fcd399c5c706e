package wait

// A batch of waits goes one way. After some batches that went the way in use, one goes the
// other way, on trial. So the two are compared in what the threads around do at that time.
const (
	batch     = 16
	firstRest = 128  // waits between two trials, at first
	mostRest  = 2048 // it doubles with each trial that changes nothing
	smooth    = 4    // a mean moves by this part of what a batch differs from it
	hold      = 10   // percent: a way in use is kept although it gains so much less
)

// gain is the percentage of its waits that the other way has to come down to, to be taken
// instead of the favoured one. Of threads that take turns each measures while the others go
// their way. If one blocks, its neighbours wait longer and gain less by looking. So a thread
// that many wait for, and that would be slow to go back, must not leave its way for a little.
func gain(favoured Strategy) int64 {
	if favoured == Yield {
		return 50
	}
	return 80
}

// ways compares waits that look, and those that block at once, by how long they last.
type ways struct {
	favoured Strategy
	way      Strategy // in use
	trial    bool     // the present batch goes the other way
	sum      int64    // ns of the present batch
	n        int      // waits of it
	left     int      // waits until the next trial
	rest     int
	mean     [2]int64 // ns of a wait that blocked, and that looked; 0: not known
}

func newWays(favoured Strategy) ways {
	return ways{favoured: favoured, way: favoured, rest: firstRest}
}

func other(s Strategy) Strategy {
	if s == Block {
		return Yield
	}
	return Block
}

// of is the mean of a way.
func (y *ways) of(s Strategy) *int64 {
	if s == Block {
		return &y.mean[0]
	}
	return &y.mean[1]
}

// next is how the next wait goes.
func (y *ways) next() Strategy {
	if y.trial {
		return other(y.way)
	}
	return y.way
}

// took notes a wait that went as next said.
func (y *ways) took(d int64) {
	y.sum += d
	if y.n++; y.n < batch {
		return
	}
	m := y.of(y.next())
	if mean := max(y.sum/batch, 1); *m == 0 {
		*m = mean
	} else {
		*m += (mean - *m) / smooth
	}
	y.sum, y.n = 0, 0
	if y.trial {
		y.trial = false
		y.decide()
		return
	}
	if y.left -= batch; y.left <= 0 {
		y.trial = true
	}
}

// decide ends a trial.
func (y *ways) decide() {
	use, try := *y.of(y.way), *y.of(other(y.way))
	change := try*100 < use*gain(y.favoured)
	if y.way != y.favoured {
		change = use*100 > try*(gain(y.favoured)+hold)
	}
	if change {
		y.way, y.rest = other(y.way), firstRest
	} else {
		y.rest = min(2*y.rest, mostRest)
	}
	y.left = y.rest
}
