package main

import "github.com/rdsd/rdsd/test/bench/worker"

// memcpy copies within one process what an RDMA operation would copy, in the same sizes, walking
// through the same footprint at each end.
func memcpy(w *worker.Worker) error {
	n, size := w.Int("footprint")<<20, w.Int("size")
	from, to := make([]byte, n), make([]byte, n)
	fill(from)
	fill(to)
	if err := w.Ready("-"); err != nil {
		return err
	}
	off := 0
	return w.Each(w.Count, func() (int, error) {
		copy(to[off:off+size], from[off:off+size])
		off = (off + size) % n
		return 1, nil
	})
}

// nobody takes the place of the other end in a case that has only one.
func nobody(w *worker.Worker) error {
	if err := w.Ready("-"); err != nil {
		return err
	}
	return w.Serve(func() error { return nil })
}
