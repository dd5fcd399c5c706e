package engine

// list is a doubly linked list, oldest first, whose links are in its elements:
// adding and deleting take constant time, and elements may be on several.
type list[T any] struct {
	head, tail *link[T]
	n          int
}

// link is an element's place on one list. The zero value is on none.
type link[T any] struct {
	next, prev *link[T]
	of         *T // nil: on no list
}

// add puts of, through its link l, at the end.
func (a *list[T]) add(l *link[T], of *T) {
	l.next, l.prev, l.of = nil, a.tail, of
	if a.tail != nil {
		a.tail.next = l
	} else {
		a.head = l
	}
	a.tail = l
	a.n++
}

// on reports whether the element is on a list.
func (l *link[T]) on() bool { return l.of != nil }

// del takes l off, if it is on the list.
func (a *list[T]) del(l *link[T]) {
	if l.of == nil {
		return
	}
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		a.head = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		a.tail = l.prev
	}
	*l = link[T]{}
	a.n--
}

// turnOver puts the first of a list at its end: the next one's turn has come.
func (a *list[T]) turnOver() {
	l := a.head
	x := l.of
	a.del(l)
	a.add(l, x)
}
