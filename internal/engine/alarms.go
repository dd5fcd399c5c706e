package engine

import "container/heap"

// alarms is a heap of elements by when each is due, soonest first. The zero value is
// empty.
type alarms[T any] struct{ byTime alarmHeap[T] }

// alarm is an element's place in one. The zero value is in none.
type alarm[T any] struct {
	at  int64 // 0: in none
	pos int
	of  *T
}

// set has of due at at, whenever it was due before.
func (h *alarms[T]) set(a *alarm[T], of *T, at int64) {
	a.of = of
	if a.at == 0 {
		a.at = at
		heap.Push(&h.byTime, a)
	} else {
		a.at = at
		heap.Fix(&h.byTime, a.pos)
	}
}

// drop takes a out, if it is in there.
func (h *alarms[T]) drop(a *alarm[T]) {
	if a.at != 0 {
		heap.Remove(&h.byTime, a.pos)
	}
}

// next is when the first is due, 0: there is none.
func (h *alarms[T]) next() int64 {
	if len(h.byTime) == 0 {
		return 0
	}
	return h.byTime[0].at
}

// due takes the first out if it is due by now, else it returns nil.
func (h *alarms[T]) due(now int64) *T {
	if len(h.byTime) == 0 || h.byTime[0].at > now {
		return nil
	}
	return heap.Pop(&h.byTime).(*alarm[T]).of
}

// alarmHeap is for package heap.
type alarmHeap[T any] []*alarm[T]

func (h alarmHeap[T]) Len() int           { return len(h) }
func (h alarmHeap[T]) Less(i, j int) bool { return h[i].at < h[j].at }

func (h alarmHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *alarmHeap[T]) Push(x any) {
	a := x.(*alarm[T])
	a.pos = len(*h)
	*h = append(*h, a)
}

func (h *alarmHeap[T]) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.at = 0
	return a
}
