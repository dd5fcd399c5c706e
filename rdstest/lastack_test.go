package rdstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rdstest"
)

// TestStopAcks: a daemon that is stopped acks what it has delivered, so that the sender's CloseWait ends.
func TestStopAcks(t *testing.T) {
	for range 5 {
		ds := rdstest.StartDaemons(t, 2)
		a, b := ds[0].Bind(t, ds[0].Open(t), 0), ds[1].Bind(t, ds[1].Open(t), 0)
		if _, err := a.SendTo([]byte("first"), b.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.RecvFrom(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.SendTo([]byte("x"), b.LocalAddrPort()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.RecvFrom(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := ds[1].Stop(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := a.CloseWait(ctx); err != nil {
			var n [4]rds.Notice
			t.Errorf("%v, %v", err, n[:a.Notices(n[:])])
		}
		cancel()
	}
}
