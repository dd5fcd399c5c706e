package lists

import "container/heap"

// Alarms is a heap of elements by the time at which each is due, soonest first. The zero
// value is an empty heap.
type Alarms[T any] struct{ byTime alarmHeap[T] }

// Alarm is an element's place in a heap. The zero value is in no heap.
type Alarm[T any] struct {
	at  int64 // 0 if it is in no heap
	pos int
	of  *T
}

// When is the time at which the element is due. It is 0 if the element is in no heap.
func (a *Alarm[T]) When() int64 { return a.at }

// Len is the number of elements.
func (h *Alarms[T]) Len() int { return len(h.byTime) }

// Set makes of due at at. An earlier time of a is replaced.
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

// Drop takes a out, if it is in the heap.
func (h *Alarms[T]) Drop(a *Alarm[T]) {
	if a.at != 0 {
		heap.Remove(&h.byTime, a.pos)
	}
}

// Next is when the first element is due. It is 0 if the heap is empty.
func (h *Alarms[T]) Next() int64 {
	if len(h.byTime) == 0 {
		return 0
	}
	return h.byTime[0].at
}

// Due takes the first element out and returns it if it is due by now. Otherwise it returns
// nil.
func (h *Alarms[T]) Due(now int64) *T {
	if len(h.byTime) == 0 || h.byTime[0].at > now {
		return nil
	}
	return heap.Pop(&h.byTime).(*Alarm[T]).of
}

// alarmHeap implements heap.Interface.
type alarmHeap[T any] []*Alarm[T]

func (b alarmHeap[T]) Len() int           { return len(b) }
func (b alarmHeap[T]) Less(i, j int) bool { return b[i].at < b[j].at }

func (b alarmHeap[T]) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].pos, b[j].pos = i, j
}

func (b *alarmHeap[T]) Push(x any) {
	a := x.(*Alarm[T])
	a.pos = len(*b)
	*b = append(*b, a)
}

func (b *alarmHeap[T]) Pop() any {
	last := len(*b) - 1
	a := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	a.at = 0
	return a
}
