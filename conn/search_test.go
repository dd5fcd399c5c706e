package conn

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestSearch runs small scripts on two Conns in every order: what the hosts, the
// provider and the fates can do next is a list of actions, and every action is
// tried in every state that can be reached. A state is what its actions made
// of it: they are replayed from the start, and states that are the same (see
// fingerprint) are looked at once. The search is breadth first, so a failure
// comes with a shortest list of actions that leads to it.
//
// Each script is searched to its end; -conn.deep adds larger ones, which may be
// searched to mostStates only: then to all orders of so many actions as the log
// says.
//
//	go test ./conn -run TestSearch -v -conn.deep
const mostStates = 300_000

var searchDeep = flag.Bool("conn.deep", false, "search larger scripts too")

// searchCase is a script and how many of each fate may strike.
type searchCase struct {
	name     string
	sends    [2]string // of each host, in order: m message, w WRITE, r READ, a atomic, R revoke the peer's key
	cuts     int       // breaks, at any point
	restarts int       // of host 1
	full     bool      // host 1's port is full once
	unbound  bool      // host 1's port has no socket from some moment on
	cancel   bool      // host 0's first message is cancelled
	giveUp   bool      // host 0's first message is given up
	credits  int       // 0: plenty
	deep     bool
}

var searchCases = []searchCase{
	{name: "crossing", sends: [2]string{"m", "m"}},
	{name: "break", sends: [2]string{"m", ""}, cuts: 1},
	{name: "write and break", sends: [2]string{"w", ""}, cuts: 1},
	{name: "read and break", sends: [2]string{"r", ""}, cuts: 1},
	{name: "atomic and break", sends: [2]string{"a", ""}, cuts: 1},
	{name: "restart", sends: [2]string{"w", ""}, restarts: 1},
	{name: "refusal", sends: [2]string{"w", ""}, full: true},
	{name: "no socket", sends: [2]string{"mm", ""}, unbound: true},
	{name: "cancel", sends: [2]string{"wm", ""}, cancel: true},
	{name: "give up", sends: [2]string{"mm", ""}, giveUp: true},
	{name: "revoke", sends: [2]string{"w", "R"}},

	{name: "two messages and break", sends: [2]string{"mm", ""}, cuts: 1, deep: true},
	{name: "two refused", sends: [2]string{"mm", ""}, full: true, deep: true},
	{name: "both ways and break", sends: [2]string{"mw", "m"}, cuts: 1, deep: true},
	{name: "two breaks", sends: [2]string{"w", ""}, cuts: 2, deep: true},
	{name: "refusal and break", sends: [2]string{"mm", ""}, full: true, cuts: 1, deep: true},
	{name: "operation refused and break", sends: [2]string{"w", ""}, full: true, cuts: 1, deep: true},
	{name: "no socket and break", sends: [2]string{"mw", ""}, unbound: true, cuts: 1, deep: true},
	{name: "cancel and break", sends: [2]string{"wm", ""}, cancel: true, cuts: 1, deep: true},
	{name: "give up and break", sends: [2]string{"wm", ""}, giveUp: true, cuts: 1, deep: true},
	{name: "restart and break", sends: [2]string{"wm", ""}, restarts: 1, cuts: 1, deep: true},
	{name: "restart and refusal", sends: [2]string{"mm", ""}, restarts: 1, full: true, deep: true},
	{name: "revoke and break", sends: [2]string{"w", "R"}, cuts: 1, deep: true},
	{name: "least credits", sends: [2]string{"mmm", "m"}, credits: MinCredits, deep: true},
}

func TestSearch(t *testing.T) {
	for _, c := range searchCases {
		if c.deep && !*searchDeep || testing.Short() && c.name != "write and break" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := search{c: &c, seen: make(map[uint64]bool), outcomes: make(map[string]int)}
			start := time.Now()
			if path, err := s.run(); err != nil {
				t.Fatalf("%s\nafter these actions:\n%s", err, strings.Join(path, "\n"))
			}
			if s.cut && !c.deep {
				t.Errorf("more than %d states", mostStates)
			}
			t.Logf("%d states, %d transitions, depth %d, to the end %v, %v; ends: %v", len(s.nodes), s.tried, s.depth, !s.cut,
				time.Since(start).Round(time.Millisecond), s.outcomes)
		})
	}
}

// search is one exhaustive search.
type search struct {
	c        *searchCase
	nodes    []searchNode
	seen     map[uint64]bool
	tried    int
	depth    int            // every order of so many actions was tried
	cut      bool           // at mostStates
	outcomes map[string]int // of whole runs
	path     []action
}

// searchNode is a state: its predecessor and the action that led from there.
type searchNode struct {
	parent int32
	depth  int32
	act    action
}

// run returns the first failure with the actions that led to it.
func (s *search) run() (path []string, err error) {
	var w *searchWorld
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(searchFailure)
			if !ok {
				f = searchFailure(fmt.Sprintf("panic: %v", r))
			}
			err = fmt.Errorf("%s", string(f))
			for _, a := range w.did {
				path = append(path, a.String())
			}
		}
	}()
	w = newSearchWorld(s.c)
	h := w.fingerprint()
	s.seen[h] = true
	s.nodes = append(s.nodes, searchNode{parent: -1})
	hashes := []uint64{h}
	for at := 0; at < len(s.nodes); at++ {
		own, n := hashes[at], s.nodes[at]
		s.depth = int(n.depth)
		if len(s.nodes) >= mostStates {
			s.cut = true
			return nil, nil
		}
		w = s.replay(int32(at))
		next := w.next()
		fresh := true
		try := func(a action) (moved bool) {
			if !fresh {
				w = s.replay(int32(at))
			}
			fresh = false
			w.do(a)
			s.tried++
			h := w.fingerprint()
			if !s.seen[h] {
				s.seen[h] = true
				s.nodes = append(s.nodes, searchNode{parent: int32(at), depth: n.depth + 1, act: a})
				hashes = append(hashes, h)
			}
			return h != own
		}
		busy := false // something happens by itself
		for _, a := range next {
			busy = try(a) && a.kind < actCut || busy
		}
		if !busy {
			w = s.replay(int32(at))
			fresh = true
			if w.can(wait) && try(wait) {
				continue
			}
			w = s.replay(int32(at))
			w.atRest()
			s.outcomes[w.ends()]++
		} else if own%64 == 0 {
			w = s.replay(int32(at))
			w.calm()
		}
	}
	if len(s.outcomes) == 0 {
		panic(searchFailure("it never came to rest"))
	}
	return nil, nil
}

// replay returns the world of node n.
func (s *search) replay(n int32) *searchWorld {
	s.path = s.path[:0]
	for ; s.nodes[n].parent >= 0; n = s.nodes[n].parent {
		s.path = append(s.path, s.nodes[n].act)
	}
	w := newSearchWorld(s.c)
	for i := len(s.path) - 1; i >= 0; i-- {
		w.do(s.path[i])
	}
	return w
}

// action is something that may happen next.
type action struct {
	kind actKind
	host uint8
}

type actKind uint8

const (
	actSend    actKind = iota // the application sends the next message of its script
	actCM                     // the host takes a connection manager event
	actPoll                   // the host takes a completion
	actEmpty                  // the host finds the completion queue empty
	actFlush                  // the host flushes
	actTick                   // a short timer runs out
	actDeliver                // the oldest request on the wire is carried out at the peer
	actNotice                 // the provider notices that the other end is gone
	actFree                   // the full port has room again
	actWait                   // nothing happens until the next timer

	actCut     // both ends learn that the connection is gone
	actFlushed // likewise, and completions not taken yet say flushed
	actHalf    // one end learns it, the other at a later time
	actReset   // a host breaks it off itself
	actRestart
	actFull
	actUnbind
	actCancel
	actGiveUp
)

var actNames = [...]string{"send", "CM event", "poll", "CQ empty", "flush", "tick", "deliver", "notice", "port free",
	"wait", "cut", "cut, completions flushed", "cut, unnoticed by the peer", "reset", "restart", "port full", "port unbound",
	"cancel", "give up"}

func (a action) String() string { return fmt.Sprintf("host %d: %s", a.host, actNames[a.kind]) }

var wait = action{kind: actWait}

// next returns what may happen now, apart from waiting.
func (w *searchWorld) next() (as []action) {
	for _, a := range actions {
		if w.can(a) {
			as = append(as, a)
		}
	}
	return as
}

// actions are all there are, but for waiting.
var actions = func() (as []action) {
	for k := range actFree {
		as = append(as, action{k, 0}, action{k, 1})
	}
	return append(as, action{actFree, 1}, action{actCut, 0}, action{actFlushed, 0}, action{actHalf, 0}, action{actHalf, 1},
		action{actReset, 0}, action{actRestart, 1}, action{actFull, 1}, action{actUnbind, 1}, action{actCancel, 0}, action{actGiveUp, 0})
}()
