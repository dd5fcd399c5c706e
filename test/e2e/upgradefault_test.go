package e2e

import (
	"testing"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/rds"
)

// TestUpgradeFault: what cannot be taken over of a process ends that process's session, and the
// daemon is replaced. The process learns the reason. Others notice nothing.
func TestUpgradeFault(t *testing.T) { isolated(t, testUpgradeFault) }

func testUpgradeFault(t *testing.T) {
	here := newFailing(t)
	clients := []*rds.Client{here.open(), here.open(), here.open()}
	var socks []*rds.Socket
	for i, c := range clients {
		socks = append(socks, here.bind(c, uint16(100+i)))
	}
	here.expected = append(here.expected, "a planned restart goes on without it")
	here.next(failpoint.Process + ":3") // the last process of three, then there are two
	here.upgrade(failingSuccessor()...)
	here.next("")
	if n := here.logged("a planned restart goes on without it"); n != 1 {
		t.Errorf("%d sessions were logged to have ended", n)
	}
	<-clients[2].Done()
	contains(t, "the reason", clients[2].Err().Error(), "a planned restart cannot take this process over")
	buf := make([]byte, 16)
	for range 2 {
		if _, err := socks[0].SendTo([]byte("hello"), here.at(101)); err != nil {
			t.Error(err)
		}
		if n, _, err := socks[1].RecvFrom(buf); err != nil || string(buf[:n]) != "hello" {
			t.Errorf("%q, %v", buf[:n], err)
		}
		here.upgrade()
	}
}
