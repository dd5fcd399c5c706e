package rds

import "testing"

// TestLookGivesBack: a call that only looks, and finds messages to a socket that closes, gives their memory back to
// the daemon.
func TestLookGivesBack(t *testing.T) {
	for name, look := range map[string]func(s *Socket){
		"Wait":        func(s *Socket) { _, _ = s.Wait(DontWait, WaitSet{Completion: true}) },
		"WaitOp":      func(s *Socket) { _, _ = s.WaitOp(DontWait, s.local.Addr(), 1) },
		"Completions": func(s *Socket) { s.Completions(nil) },
		"Notices":     func(s *Socket) { s.Notices(nil) },
		"CongUpdates": func(s *Socket) { (kernelSocket{s}).CongUpdates() },
		"Recv":        func(s *Socket) { _ = s.Recv(DontWait, &Received{}) },
		"peek":        func(s *Socket) { _ = look(DontWait, s, &Received{}) },
		"Bind":        func(s *Socket) { s.c.rx.startBind() },
	} {
		t.Run(name, func(t *testing.T) {
			d, a, b := pair(t, Options{})
			mustSend(t, a, "x", b)
			if err := b.shut(); err != nil {
				t.Fatal(err)
			}
			d.do(func() {}) // it has delivered
			look(a)
			wantReturned(t, d)
			a.c.rx.binding = false
		})
	}
}
