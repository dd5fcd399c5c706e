package main

import (
	"runtime"
	"time"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// object is what a program's heap is filled with: a small object that points to another one.
type object struct {
	next *object
	data [1024 - 8]byte
}

// collector has only ballast. It shows how much of the machine the collections take.
func collector(w *worker.Worker) error {
	ballast(w)
	if err := w.Ready("-"); err != nil {
		return err
	}
	return w.Serve(func() error { select {} })
}

// gcPause is the time between two collections of a heap with ballast.
const gcPause = 100 * time.Millisecond

// ballast fills the heap with as many MiB of objects as the argument heap says. Then it collects
// garbage again and again until the process ends. Without the argument it does nothing.
func ballast(w *worker.Worker) {
	if w.Int("heap") == 0 {
		return
	}
	objects := make([]*object, w.Int("heap")<<10)
	for i := range objects {
		objects[i] = &object{next: objects[i/2]}
		objects[i].data[0] = 1
	}
	w.Begin()
	go func() {
		for {
			time.Sleep(gcPause)
			runtime.GC()
			runtime.KeepAlive(objects)
		}
	}()
}
