package soft

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// TestFDWakesForCompletions: an armed CQ's event keeps the FD readable until
// taken; so do connection events.
func TestFDWakesForCompletions(t *testing.T) {
	h := newHost(t, Options{})
	p := newPuppet(t, h, attrs())
	h.recv(verbs.RecvWR{WRID: 1})
	p.write(sendFrame(1, 0, true, nil))
	for h.dev.Progress() {
	}
	h.collect()
	if readable(h.dev.FD()) {
		t.Fatal("readable without work")
	}
	h.cq.ReqNotify(false)
	h.qp.ToError()
	h.qp.PostRecv([]verbs.RecvWR{{WRID: 2}})
	if !readable(h.dev.FD()) {
		t.Error("armed CQ with a completion does not wake")
	}
	h.collect()
	h.dev.Progress()
	if !readable(h.dev.FD()) || !h.cq.Notified() || h.cq.Notified() {
		t.Error("the event is not there once")
	}
	if readable(h.dev.FD()) {
		t.Error("readable after the event was taken")
	}
	// Solicited only: a plain receive does not count, a solicited one does.
	p = newPuppet(t, h, attrs())
	h.recv(verbs.RecvWR{}, verbs.RecvWR{})
	h.cq.ReqNotify(true)
	unix.Write(p.fd, sendFrame(1, 0, true, nil))
	for h.dev.Progress() {
	}
	if readable(h.dev.FD()) {
		t.Error("unsolicited receive woke")
	}
	unix.Write(p.fd, seal(&iwarp.Header{Op: iwarp.OpSendSE, Last: true, MSN: 2}, nil))
	for h.dev.Progress() {
	}
	if !readable(h.dev.FD()) {
		t.Error("solicited receive did not wake")
	}
	h.collect()
	h.cq.Notified()
	// Connection events.
	h.qp.(*qp).lost(nil)
	if !readable(h.dev.FD()) {
		t.Error("CMDisconnected does not wake")
	}
	h.event()
	h.dev.Progress()
	if readable(h.dev.FD()) {
		t.Error("readable after PollCM")
	}
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, 0)
	return n > 0
}
