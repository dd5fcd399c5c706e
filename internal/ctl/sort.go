package ctl

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strconv"
)

// Sort is slices.SortFunc for the rows of answers, and whatever else is sorted seldom. The compiler makes slices.SortFunc anew
// for each type of row, twenty kilobytes each. Sort is one sort for all.
func Sort[T any](rows []T, compare func(a, b T) int) {
	sort.Sort(&ordered[T]{rows, compare})
}

// Sorted is slices.Sorted, likewise.
func Sorted[T cmp.Ordered](all iter.Seq[T]) []T {
	list := slices.Collect(all)
	Sort(list, cmp.Compare)
	return list
}

// sortStable is Sort for rows of which equal ones keep their order.
func sortStable[T any](rows []T, compare func(a, b T) int) {
	sort.Stable(&ordered[T]{rows, compare})
}

type ordered[T any] struct {
	rows    []T
	compare func(a, b T) int
}

func (o *ordered[T]) Len() int           { return len(o.rows) }
func (o *ordered[T]) Less(i, j int) bool { return o.compare(o.rows[i], o.rows[j]) < 0 }
func (o *ordered[T]) Swap(i, j int)      { o.rows[i], o.rows[j] = o.rows[j], o.rows[i] }

// bySocket and byPeer are the orders of the lists of sockets and peers.
func bySocket(a, b SocketInfo) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
}

// LanePath is the connection's lane, and behind a point its path, unless that is 0.
func (i *PeerInfo) LanePath() string {
	if i.Path == 0 {
		return strconv.Itoa(int(i.Lane))
	}
	return fmt.Sprintf("%d.%d", i.Lane, i.Path)
}

func byPeer(a, b PeerInfo) int {
	return cmp.Or(a.Remote.Compare(b.Remote), a.Local.Compare(b.Local), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Path, b.Path))
}
