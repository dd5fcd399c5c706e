package rds

import (
	"testing"
)

// TestRebindSettings: a socket that is bound anew has the settings of the old one.
func TestRebindSettings(t *testing.T) {
	d, old, _ := pair(t, Options{})
	old.SetFailUnreachable(true)
	(kernelSocket{old}).SetCongMonitor(true)
	old.SetNotices(Lost)
	d.die(nil)
	<-old.c.Done()
	c, _ := openFake(t, Options{})
	s, err := c.Rebind(old)
	if err != nil {
		t.Fatal(err)
	}
	if !s.failUnreachable.Load() || !s.congMon.Load() || s.unwanted != old.unwanted {
		t.Error("a setting stayed behind")
	}
}
