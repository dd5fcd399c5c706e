package lists

import "container/heap"

// Alarms is a heap of elements by when each is due, soonest first. The zero value is
// empty.
type Alarms[T any] struct{ byTime alarmHeap[T] }

// Alarm is an element's place in one. The zero value is in none.
type Alarm[T any] struct {
	at  int64 // 0: in none
	pos int
	of  *T
}

// When is when the element is due, 0: it is in none.
func (a *Alarm[T]) When() int64 { return a.at }

// Len is how many elements there are.
func (h *Alarms[T]) Len() int { return len(h.byTime) }

// Set has of due at at, whenever it was due before.
func (h *Alarms[T]) Set(a *Alarm[T], of *T, at int64) {
	a.of = of
	if a.at == 0 {
		a.at = at
		heap.Push(&h.byTime, a)
	} else {
		a.at = at
		heap.Fix(&h.byTime, a.pos)
	}
}

// Drop takes a out, if it is in there.
func (h *Alarms[T]) Drop(a *Alarm[T]) {
	if a.at != 0 {
		heap.Remove(&h.byTime, a.pos)
	}
}

// Next is when the first is due, 0: there is none.
func (h *Alarms[T]) Next() int64 {
	if len(h.byTime) == 0 {
		return 0
	}
	return h.byTime[0].at
}

// Due takes the first out if it is due by now, else it returns nil.
func (h *Alarms[T]) Due(now int64) *T {
	if len(h.byTime) == 0 || h.byTime[0].at > now {
		return nil
	}
	return heap.Pop(&h.byTime).(*Alarm[T]).of
}

// alarmHeap is for package heap.
type alarmHeap[T any] []*Alarm[T]

func (h alarmHeap[T]) Len() int           { return len(h) }
func (h alarmHeap[T]) Less(i, j int) bool { return h[i].at < h[j].at }

func (h alarmHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

func (h *alarmHeap[T]) Push(x any) {
	a := x.(*Alarm[T])
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
