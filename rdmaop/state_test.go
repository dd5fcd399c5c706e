package rdmaop

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

var seed = flag.Uint64("seed", 0, "replay this seed of the random tests")

// replay runs f with fixed seeds and a new one, or with -seed alone.
func replay(t *testing.T, f func(t *testing.T, seed uint64)) {
	t.Helper()
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8, rand.Uint64()}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	for _, s := range seeds {
		f(t, s)
		if t.Failed() {
			t.Fatalf("replay with: go test ./rdmaop -run '^%s$' -seed %d", t.Name(), s)
		}
	}
}

// in returns an operation brought to state s; its status, where it has one, is
// CANCELED.
func in(t testing.TB, s State) *Op {
	t.Helper()
	paths := [numStates][]EventType{
		StateQueued:  {EvQueue},
		StatePosted:  {EvQueue, EvPost},
		StateLocal:   {EvQueue, EvPost, EvLocal},
		StateTold:    {EvQueue, EvPost, EvCancel},
		StateSettled: {EvQueue, EvPost, EvCancel, EvLocal},
	}
	o := new(Op)
	for _, e := range paths[s] {
		if _, err := o.Step(Event{Type: e}); err != nil {
			t.Fatal(err)
		}
	}
	if o.State() != s {
		t.Fatalf("in state %v, want %v", o.State(), s)
	}
	return o
}

// TestEveryPair is the state machine written out: each (state, event) is here
// with its outcome, or it is refused by name and changes nothing.
func TestEveryPair(t *testing.T) {
	type pair struct {
		s State
		e EventType
	}
	type result struct {
		to     State
		eff    Effect
		status abi.Status // with Report
	}
	const both = Report | RaiseLocal
	ok := abi.StatusSuccess
	remote, canceled, dropped, unknown := abi.StatusRemoteError, abi.StatusCanceled, abi.StatusDropped, abi.StatusUnknown
	allowed := map[pair]result{
		{StateNew, EvQueue}: {to: StateQueued},

		{StateQueued, EvPost}:      {to: StatePosted},
		{StateQueued, EvRefuse}:    {StateSettled, both, remote},
		{StateQueued, EvCancel}:    {StateSettled, both, canceled},
		{StateQueued, EvRestarted}: {StateSettled, both, dropped},
		{StateQueued, EvTimeout}:   {StateSettled, both, dropped},
		{StateQueued, EvSibling}:   {StateSettled, both, dropped},

		{StatePosted, EvLocal}:     {to: StateLocal, eff: RaiseLocal},
		{StatePosted, EvAck}:       {StateTold, Report, ok},
		{StatePosted, EvLess}:      {StateTold, Report, dropped},
		{StatePosted, EvNoSocket}:  {StateTold, Report, dropped},
		{StatePosted, EvRestarted}: {StateTold, Report, unknown},
		{StatePosted, EvTimeout}:   {StateTold, Report, unknown},
		{StatePosted, EvWCError}:   {StateTold, Report, remote},
		{StatePosted, EvCancel}:    {StateTold, Report, canceled},
		{StatePosted, EvSibling}:   {StateTold, Report, dropped},

		{StateLocal, EvAck}:       {StateSettled, Report, ok},
		{StateLocal, EvLess}:      {StateSettled, Report, dropped},
		{StateLocal, EvNoSocket}:  {StateSettled, Report, dropped},
		{StateLocal, EvRestarted}: {StateSettled, Report, unknown},
		{StateLocal, EvTimeout}:   {StateSettled, Report, unknown},
		{StateLocal, EvWCError}:   {StateSettled, Report, remote},
		{StateLocal, EvCancel}:    {StateSettled, Report, canceled},
		{StateLocal, EvSibling}:   {StateSettled, Report, dropped},

		{StateTold, EvLocal}: {to: StateSettled, eff: RaiseLocal},
	}
	for _, s := range []State{StateTold, StateSettled} { // late news
		for _, e := range []EventType{EvAck, EvLess, EvNoSocket, EvRestarted, EvTimeout, EvWCError, EvCancel, EvSibling} {
			allowed[pair{s, e}] = result{to: s}
		}
	}
	for s := range numStates {
		for e := range numEvents + 1 { // and one that does not exist
			o := in(t, s)
			before := *o
			eff, err := o.Step(Event{Type: e, WC: verbs.WCRemAccessErr, Errno: unix.EACCES})
			want, found := allowed[pair{s, e}]
			if !found {
				var refused *EventError
				if !errors.As(err, &refused) || refused.State != s || refused.Event != e {
					t.Errorf("%v in %v: error %v, want it refused by name", e, s, err)
				}
				if eff != 0 || o.State() != before.state || o.Status() != before.status || o.Errno() != before.errno {
					t.Errorf("%v in %v: refused, but changed the operation", e, s)
				}
				continue
			}
			if err != nil || o.State() != want.to || eff != want.eff {
				t.Errorf("%v in %v: to %v, effect %b, %v; want %v, %b", e, s, o.State(), eff, err, want.to, want.eff)
			}
			status := before.status
			if want.eff&Report != 0 {
				status = want.status
			}
			if o.Status() != status {
				t.Errorf("%v in %v: status %v, want %v", e, s, o.Status(), status)
			}
			if wantErrno := e == EvRefuse; (o.Errno() == unix.EACCES) != wantErrno {
				t.Errorf("%v in %v: errno %v", e, s, o.Errno())
			}
		}
	}
}

func TestWCSuccessIsNoError(t *testing.T) {
	o := in(t, StatePosted)
	var refused *EventError
	if _, err := o.Step(Event{Type: EvWCError, WC: verbs.WCSuccess}); !errors.As(err, &refused) {
		t.Errorf("WCError with success: %v, want *EventError", err)
	}
	if o.State() != StatePosted {
		t.Errorf("state %v", o.State())
	}
}

func TestStatusOf(t *testing.T) {
	for _, c := range []struct {
		wc     verbs.WCStatus
		status abi.Status
		names  bool
	}{
		{verbs.WCSuccess, abi.StatusUnknown, false},
		{verbs.WCWRFlushErr, abi.StatusUnknown, false},
		{verbs.WCRetryExcErr, abi.StatusUnknown, false},
		{verbs.WCRNRRetryExcErr, abi.StatusUnknown, false},
		{verbs.WCFatalErr, abi.StatusUnknown, false},
		{verbs.WCGeneralErr, abi.StatusUnknown, false},
		{verbs.WCRemAccessErr, abi.StatusRemoteError, true},
		{verbs.WCRemInvReqErr, abi.StatusOtherError, true},
		{verbs.WCRemOpErr, abi.StatusOtherError, true},
		{verbs.WCLocProtErr, abi.StatusOtherError, true},
		{verbs.WCLocLenErr, abi.StatusOtherError, true},
		{verbs.WCLocQPOpErr, abi.StatusOtherError, true},
		{verbs.WCLocAccessErr, abi.StatusOtherError, true},
		{verbs.WCBadRespErr, abi.StatusOtherError, true},
	} {
		status, names := StatusOf(c.wc)
		if status != c.status || names != c.names {
			t.Errorf("StatusOf(%d) = %v, %v; want %v, %v", c.wc, status, names, c.status, c.names)
		}
		if c.wc == verbs.WCSuccess {
			continue
		}
		o := in(t, StatePosted)
		if eff, err := o.Step(Event{Type: EvWCError, WC: c.wc}); err != nil || eff != Report || o.Status() != c.status {
			t.Errorf("WCError %d: effect %b, status %v, %v", c.wc, eff, o.Status(), err)
		}
	}
}

func TestWantsStatus(t *testing.T) {
	for _, c := range []struct {
		flags       abi.OpFlags
		onOK, onErr bool
	}{
		{0, false, false},
		{abi.FlagNotify, true, true},
		{abi.FlagReport, false, true},
		{abi.FlagNotify | abi.FlagReport, true, true},
		{abi.FlagSilent | abi.FlagFence, false, false},
	} {
		o := in(t, StateLocal)
		o.Flags = c.flags
		o.Step(Event{Type: EvAck})
		if o.WantsStatus() != c.onOK {
			t.Errorf("flags %#x, SUCCESS: %v", c.flags, o.WantsStatus())
		}
		o = in(t, StateLocal)
		o.Flags = c.flags
		o.Step(Event{Type: EvLess})
		if o.WantsStatus() != c.onErr {
			t.Errorf("flags %#x, DROPPED: %v", c.flags, o.WantsStatus())
		}
	}
}

// TestLife steps operations through random histories, refused events
// included, and checks what must hold over a whole life.
func TestLife(t *testing.T) {
	replay(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		ended := 0
		for range 2000 {
			o := new(Op)
			var reports, raises int
			var posted, acked, local bool
			for range 3 + r.IntN(30) {
				ev := Event{Type: EventType(r.IntN(int(numEvents))), WC: verbs.WCStatus(r.IntN(22)), Errno: unix.EACCES}
				eff, err := o.Step(ev)
				if err != nil {
					if eff != 0 {
						t.Errorf("refused %v had effect %b", ev.Type, eff)
					}
					continue
				}
				switch ev.Type {
				case EvPost:
					posted = true
				case EvLocal:
					local = true
				case EvAck:
					acked = true
				}
				if eff&Report != 0 {
					reports++
					if o.Status() == abi.StatusSuccess && ev.Type != EvAck {
						t.Errorf("SUCCESS reported on %v", ev.Type)
					}
				}
				if eff&RaiseLocal != 0 {
					raises++
					if posted && !local {
						t.Errorf("raised on %v while work requests are outstanding", ev.Type)
					}
				}
			}
			switch {
			case reports > 1 || raises > 1:
				t.Errorf("%d reports, %d raises", reports, raises)
			case o.State() == StateSettled && (reports != 1 || raises != 1):
				t.Errorf("settled with %d reports, %d raises", reports, raises)
			case reports == 1 && o.Status() == abi.StatusSuccess && !acked:
				t.Error("SUCCESS without an ack")
			}
			if o.State() == StateSettled {
				ended++
			}
		}
		if ended < 500 {
			t.Errorf("only %d of 2000 operations settled: the test sees too little", ended)
		}
	})
}

func TestReset(t *testing.T) {
	o := in(t, StateQueued)
	o.Kind, o.Token, o.Segs = abi.OpRead, 7, append(o.Segs, Seg{Len: 1}, Seg{Len: 2})
	o.Step(Event{Type: EvRefuse, Errno: unix.EINVAL})
	o.Reset()
	if o.State() != StateNew || o.Errno() != 0 || o.Kind != 0 || o.Token != 0 || len(o.Segs) != 0 || cap(o.Segs) < 2 {
		t.Errorf("after Reset: %+v, cap %d", o, cap(o.Segs))
	}
}
