package librds

import (
	"strings"
	"testing"
)

// TestGrow: a send for which there is no memory does not wait for a daemon that does not answer, unless it is to, and
// the client learns when it has got more.
func TestGrow(t *testing.T) {
	grow := make(chan struct{})
	f := startFake(t, func(h *hostile) { h.keeps, h.grow = true, grow })
	p := startDriver(t, "")
	wants := func(want, line string) {
		if got, err := p.do(line); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", line, got, err, want)
		}
	}
	wants("ok", "open f "+f.path)
	wants("ok", "bind x f 127.0.0.1:4000")
	wants("ok", "set x sndbuf 100000000")
	const send = "send x 127.0.0.1:4001 #1000000 "
	sent, err := p.do(send + "dontwait")
	for i := 0; err == nil && sent == "1000000" && i < 10; i++ {
		sent, err = p.do(send + "dontwait")
	}
	if err != nil || !strings.Contains(sent, "EAGAIN") {
		t.Errorf("without memory: %s, %v", sent, err)
	}
	wants("ready:", "wait x 0 space")
	wants("ok", "set x sndtimeo 10")
	wants("error ETIMEDOUT", send)
	wants("ok", "set x sndtimeo 0")
	close(grow)
	wants("ready: space", "wait x 20000 space")
	wants("1000000", send+"dontwait")
	if err := p.end(); err != nil {
		t.Error(err)
	}
}
