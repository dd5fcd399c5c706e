package main

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

func TestSyncerGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan error)
		var confirmed [][]uint64
		var errs []error
		s := newSyncer(func() error { return <-gate }, func(group []written, err error) {
			var ids []uint64
			for _, w := range group {
				ids = append(ids, w.id)
			}
			confirmed, errs = append(confirmed, ids), append(errs, err)
		})
		s.add(written{id: 1})
		synctest.Wait() // the first fsync is running
		s.add(written{id: 2})
		s.add(written{id: 3})
		gate <- nil
		synctest.Wait()
		s.add(written{id: 4}) // after the second fsync began: not covered by it
		failed := errors.New("no")
		gate <- failed
		go func() { gate <- nil }()
		s.close()

		want := [][]uint64{{1}, {2, 3}, {4}}
		if !slices.EqualFunc(confirmed, want, slices.Equal) {
			t.Errorf("groups %v, want %v", confirmed, want)
		}
		if !slices.Equal(errs, []error{nil, failed, nil}) {
			t.Errorf("errors %v: an fsync's error belongs to its group alone", errs)
		}
		if n := s.count(); n != 3 {
			t.Errorf("%d fsyncs, want 3", n)
		}
	})
}

func TestSyncerCloseWithoutWork(t *testing.T) {
	s := newSyncer(func() error { t.Error("fsync of nothing"); return nil }, func([]written, error) { t.Error("confirmed nothing") })
	s.close()
}

// TestSyncerFull: what waits for an fsync is bounded.
func TestSyncerFull(t *testing.T) {
	s := &syncer{pending: make([]written, maxPending-1)}
	if !s.add(written{}) || s.add(written{}) || len(s.pending) != maxPending {
		t.Errorf("%d requests wait, want %d", len(s.pending), maxPending)
	}
}

// TestConfirmAfterFailure: a FLUSH that waited while an fsync failed is not durable by the
// next fsync, which does not cover what the first one has lost.
func TestConfirmAfterFailure(t *testing.T) {
	w := newWorld(t)
	e, _ := newExport(t, make([]byte, 4096))
	x := w.stranger()
	s := &server{sock: w.d[0].Bind(t, w.d[0].Open(t), store.DefaultPort), export: e, log: slog.New(slog.DiscardHandler), ops: newOperations()}
	wantStatus(t, "begin", e.begin(7), store.StatusOK)
	for _, c := range []struct {
		session uint64
		fsync   error
		kind    store.Kind
		status  store.Status
	}{
		{7, nil, store.KindDurable, store.StatusOK},
		{7, unix.EIO, store.KindFailed, store.StatusIO},
		{7, nil, store.KindFailed, store.StatusStale},
	} {
		s.confirm([]written{{to: x.sock.LocalAddrPort(), id: 3, session: c.session}}, c.fsync)
		if a := x.hear(); a.Kind != c.kind || a.Status != c.status || a.ID != 3 {
			t.Errorf("after an fsync with %v: %+v, want %v with status %d", c.fsync, a, c.kind, c.status)
		}
	}
}
