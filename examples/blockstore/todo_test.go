package main

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rdsd/rdsd/examples/blockstore/store"
)

func TestTodoHandsOutEachBlockAndWhatComesBack(t *testing.T) {
	w := newTodo(3)
	for want := range uint64(2) {
		if j, ok := w.next(); !ok || j.block != want || j.attempt != 1 {
			t.Fatalf("got %+v, %v, want block %d", j, ok, want)
		}
	}
	w.retry(job{block: 0, attempt: 1})
	if j, ok := w.next(); !ok || j.block != 0 || j.attempt != 2 {
		t.Fatalf("got %+v, %v, want attempt 2 of block 0 ahead of new ones", j, ok)
	}
	if j, ok := w.next(); !ok || j.block != 2 {
		t.Fatalf("got %+v, %v, want block 2", j, ok)
	}
	for range 3 {
		w.finish()
	}
	if _, ok := w.next(); ok {
		t.Error("a fourth block of three")
	}
}

func TestTodoWaitsForBlocksInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTodo(1)
		j, _ := w.next()
		got := make(chan job)
		go func() {
			defer close(got)
			for {
				j, ok := w.next()
				if !ok {
					return
				}
				got <- j
			}
		}()
		synctest.Wait() // parked: the one block is in flight
		w.retry(j)
		if j := <-got; j.block != 0 || j.attempt != 2 {
			t.Errorf("got %+v, want the block again", j)
		}
		synctest.Wait()
		w.finish()
		if _, open := <-got; open {
			t.Error("a block after the last was done")
		}
	})
}

func TestTodoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTodo(1)
		w.next()
		ended := make(chan bool)
		go func() { _, ok := w.next(); ended <- ok }()
		synctest.Wait()
		first := errors.New("first")
		w.stop(first)
		w.stop(errors.New("second"))
		if <-ended {
			t.Error("stop handed out a block")
		}
		if _, err := w.state(); err != first {
			t.Errorf("error %v, want the first", err)
		}
	})
}

func TestTodoOfEmptyFile(t *testing.T) {
	if _, ok := newTodo(blocksOf(0, store.DefaultBlock)).next(); ok {
		t.Error("an empty file has a block")
	}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		size   int64
		blocks uint64
		last   int
	}{{1, 1, 1}, {4096, 1, 4096}, {4097, 2, 1}, {3*4096 - 1, 3, 4095}} {
		n := blocksOf(c.size, 4096)
		if n != c.blocks || lengthOf(c.size, 4096, n-1) != c.last {
			t.Errorf("size %d: %d blocks, the last %d bytes; want %d, %d", c.size, n, lengthOf(c.size, 4096, n-1), c.blocks, c.last)
		}
	}
}
