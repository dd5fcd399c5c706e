package engine

// queue is an intrusive singly linked FIFO.
type queue[T any, P interface {
	*T
	link() **T
}] struct {
	head, tail *T
	n          int
}

func (q *queue[T, P]) push(t *T) {
	*P(t).link() = nil
	if q.tail == nil {
		q.head = t
	} else {
		*P(q.tail).link() = t
	}
	q.tail = t
	q.n++
}

// pushFront puts t ahead of what is in the queue.
func (q *queue[T, P]) pushFront(t *T) {
	*P(t).link() = q.head
	if q.head = t; q.tail == nil {
		q.tail = t
	}
	q.n++
}

func (q *queue[T, P]) pop() *T {
	t := q.head
	if t == nil {
		return nil
	}
	q.head = *P(t).link()
	if q.head == nil {
		q.tail = nil
	}
	*P(t).link() = nil
	q.n--
	return t
}
