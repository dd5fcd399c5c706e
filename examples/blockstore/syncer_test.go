package main

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
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
