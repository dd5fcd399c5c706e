package conn

import (
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
	"github.com/rdsd/rdsd/verbs"
)

// placed makes the device one whose completions mean that the peer has it.
func placed(c *Config) { c.Attr.Caps |= verbs.CapPlacedCQ }

func kernelPrivate(change ...func(*wire.Private)) []byte {
	p := wire.Private{Src: addrB, Dst: addrA, Major: 3, Minor: 1, MinorMask: wire.MinorMask}
	for _, f := range change {
		f(&p)
	}
	return wire.AppendPrivate(nil, &p)
}

func mayBeKernel(c *Config) { c.Kernel = true }

// kernel is a script whose peer is a kernel that has connected, and whose map
// is here. What the Conn has sent so far is in raw.
func newKernel(t *testing.T, change ...func(*Config)) *script {
	t.Helper()
	s := newScript(t, append([]func(*Config){placed, mayBeKernel}, change...)...)
	s.seq = 0
	s.kernelConnect()
	s.skip()
	return s
}

func (s *script) kernelConnect(change ...func(*wire.Private)) {
	s.t.Helper()
	s.q = s.peer.newQP(1 << 10)
	s.peer.dial(s.q, addrB, addrA, kernelPrivate(change...))
	s.run()
	if s.c.State() != Up || !s.c.Ready() || !s.c.Kernel() {
		s.t.Fatalf("state %v, ready %v, kernel %v after a kernel's request: %v", s.c.State(), s.c.Ready(), s.c.Kernel(), s.lastTrace)
	}
}

// kernelAgain breaks the connection and has the kernel connect anew.
func (s *script) kernelAgain(change ...func(*wire.Private)) {
	s.t.Helper()
	s.q.toErr(true)
	s.run()
	s.dropRequests()
	s.skip()
	s.kernelConnect(change...)
}

func (s *script) skip() { s.raw, s.how = nil, nil }

// kernelFrames returns what the kernel received since the last call, one frame a
// SEND, without the congestion maps.
func (s *script) kernelFrames() (out []got) {
	s.t.Helper()
	for i, b := range s.raw {
		var h wire.Header
		if err := wire.Parse(b, &h); err != nil {
			s.t.Fatal(err)
		}
		if h.Flags != wire.FlagCong {
			out = append(out, got{h, b[wire.HeaderLen:], i})
		}
	}
	s.skip()
	return out
}

// kdata is the next message of the kernel, in its only or first frame.
func (s *script) kdata(payload string, change ...func(*wire.Header)) []byte {
	return s.data(payload, append([]func(*wire.Header){func(h *wire.Header) { h.SrcInc = 0 }}, change...)...)
}
