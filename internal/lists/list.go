// Package lists is what engine, client library and connections keep their records in:
// lists whose links are in their elements, heaps by time, pools. None allocates for an
// element, and none has a lock: they belong to who has the elements.
package lists

// List is a doubly linked list, oldest first, whose links are in its elements:
// adding and deleting take constant time, and elements may be on several.
// To go through one, follow Head and Next. Only the methods change it.
type List[T any] struct {
	Head, Tail *Link[T]
	N          int
}

// Link is an element's place on one list. The zero value is on none.
type Link[T any] struct {
	Next, prev *Link[T]
	Of         *T // nil: on no list
}

// Add puts of, through its link l, at the end.
func (a *List[T]) Add(l *Link[T], of *T) {
	l.Next, l.prev, l.Of = nil, a.Tail, of
	if a.Tail != nil {
		a.Tail.Next = l
	} else {
		a.Head = l
	}
	a.Tail = l
	a.N++
}

// AddFront puts of, through its link l, ahead of the others.
func (a *List[T]) AddFront(l *Link[T], of *T) {
	l.Next, l.prev, l.Of = a.Head, nil, of
	if a.Head != nil {
		a.Head.prev = l
	} else {
		a.Tail = l
	}
	a.Head = l
	a.N++
}

// Pop takes the first off and returns it, nil if the list is empty.
func (a *List[T]) Pop() *T {
	l := a.Head
	if l == nil {
		return nil
	}
	of := l.Of
	a.Del(l)
	return of
}

// On reports whether the element is on a list.
func (l *Link[T]) On() bool { return l.Of != nil }

// Del takes l off, if it is on the list.
func (a *List[T]) Del(l *Link[T]) {
	if l.Of == nil {
		return
	}
	if l.prev != nil {
		l.prev.Next = l.Next
	} else {
		a.Head = l.Next
	}
	if l.Next != nil {
		l.Next.prev = l.prev
	} else {
		a.Tail = l.prev
	}
	*l = Link[T]{}
	a.N--
}

// TurnOver puts the first of a list at its end: the next one's turn has come.
func (a *List[T]) TurnOver() {
	l := a.Head
	x := l.Of
	a.Del(l)
	a.Add(l, x)
}
