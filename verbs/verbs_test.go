package verbs

import "testing"

func TestRNRTimer(t *testing.T) {
	for code, ns := range map[RNRTimer]int64{0: 655_360_000, 1: 10_000, 12: 640_000, 15: 1_920_000, 31: 491_520_000} {
		if got := code.Ns(); got != ns || !code.Valid() {
			t.Errorf("code %d: %d ns, want %d", code, got, ns)
		}
	}
	for c := RNRTimer(2); c < 32; c++ {
		if c.Ns() <= (c - 1).Ns() {
			t.Errorf("code %d is not longer than code %d", c, c-1)
		}
	}
	if RNRTimer(32).Valid() {
		t.Error("code 32 is valid")
	}
}

func TestRNRRetry(t *testing.T) {
	for r, want := range map[RNRRetry]int{RNRNever: 0, 1: 1, 6: 6} {
		if n, limited := r.Limit(); n != want || !limited || !r.Valid() {
			t.Errorf("%d: %d, %v", r, n, limited)
		}
	}
	for _, r := range []RNRRetry{RNRForever, 7} {
		if _, limited := r.Limit(); limited || !r.Valid() {
			t.Errorf("%d is limited", r)
		}
	}
	for _, r := range []RNRRetry{-2, 8} {
		if r.Valid() {
			t.Errorf("%d is valid", r)
		}
	}
}

func TestIncRKey(t *testing.T) {
	if got := IncRKey(0x123456ff); got != 0x12345600 {
		t.Errorf("%#x: the index changed", got)
	}
	if got := IncRKey(0x12345600); got != 0x12345601 {
		t.Errorf("%#x", got)
	}
}

func TestAsyncTypeString(t *testing.T) {
	if s := AsyncSRQLimit.String(); s != "SRQ limit reached" {
		t.Error(s)
	}
	for _, x := range []AsyncType{6, 17, 255} {
		if s := x.String(); s != "unknown" {
			t.Errorf("%d: %s", x, s)
		}
	}
}

func TestNames(t *testing.T) {
	for op, want := range map[Opcode]string{OpSend: "SEND", OpSendWithInv: "SEND_WITH_INV", 77: "opcode 77"} {
		if got := op.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for s, want := range map[QPState]string{QPReset: "RESET", QPErr: "ERR", 7: "state 7"} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A completion queue that is armed for any completion stays so when it is asked for
// solicited ones; each event unarms it.
func TestArming(t *testing.T) {
	var a Arming
	if a.Take(true) {
		t.Error("an event of a queue that is not armed")
	}
	a.Request(true)
	if a.Take(false) || !a.Take(true) || a.Take(true) {
		t.Error("armed for solicited completions: want one event, of the solicited one")
	}
	a.Request(false)
	a.Request(true)
	if !a.Take(false) || a != Unarmed {
		t.Error("armed for any: want one event")
	}
}
