package conn

import (
	"errors"
	"testing"

	"github.com/rdsd/rdsd/conn/wire"
)

// A kernel does not look at the path of a request. That it is one, and has no such path, is the error in both of its
// answers.
func TestKernelInAPath(t *testing.T) {
	for name, answer := range map[string]func(s *script){
		"reply": func(s *script) {
			req := s.request()
			s.q = s.peer.newQP(64)
			s.peer.accept(req, s.q, kernelPrivate(func(*wire.Private) {}))
		},
		"rejection": func(s *script) { s.peer.rejectReq(s.request(), []byte{1, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, mayBeKernel, func(c *Config) { c.Path = 3 })
			s.msg("x")
			s.run()
			answer(s)
			s.run()
			if err := s.lastTrace; s.c.Ready() || !errors.Is(err, ErrPath) || errors.Is(err, ErrKernel) {
				t.Errorf("%v: %v", s.c.State(), err)
			}
		})
	}
}
