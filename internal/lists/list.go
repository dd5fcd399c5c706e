// Package lists has the containers in which engine, client library and connections keep
// their records: lists with links in the elements, heaps by time, pools. Lists and heaps
// allocate nothing for an element. None has a lock: the owner of the elements also owns
// their containers.
package lists

// List is a doubly linked list, oldest first, with its links in the elements. Adding and
// deleting take constant time. An element may be on several lists, through one Link for
// each. Head and Next walk a list. Only the methods change it.
type List[T any] struct {
	Head, Tail *Link[T]
	N          int
}

// Link is an element's place on a list. The zero value is on no list.
type Link[T any] struct {
	Next, prev *Link[T]
	Of         *T // nil if it is on no list
}

// Add puts of at the end, with the link l.
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

// AddFront puts of at the front, with the link l.
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

// Pop takes the first element off and returns it. It returns nil if the list is empty.
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

// TurnOver moves the first element to the end.
func (a *List[T]) TurnOver() {
	l := a.Head
	x := l.Of
	a.Del(l)
	a.Add(l, x)
}
