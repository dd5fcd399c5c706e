package rds

// queueKeep is the largest capacity that a queue keeps although it is little used.
// It is small enough for many thousand sockets.
const queueKeep = 64

// queueRounds is how often in a row a queue must become empty without having used a
// quarter of its memory before it gives the memory up. Under a steady load the use
// differs from round to round.
const queueRounds = 64

// queue is a FIFO on a growing ring. Its users limit its length.
type queue[T any] struct {
	buf  []T // length a power of two, or nil
	head int
	n    int
	peak int // most elements since it was last empty
	low  int // times in a row that peak was a quarter of buf or less
}

func (q *queue[T]) len() int { return q.n }

// at returns the i-th element from the front.
func (q *queue[T]) at(i int) *T { return &q.buf[(q.head+i)&(len(q.buf)-1)] }

// reserve makes room for one more element.
func (q *queue[T]) reserve() {
	if q.n < len(q.buf) {
		return
	}
	grown := make([]T, max(8, 2*len(q.buf)))
	for i := range q.n {
		grown[i] = *q.at(i)
	}
	q.buf, q.head = grown, 0
}

func (q *queue[T]) push(v T) {
	q.reserve()
	q.n++
	q.peak = max(q.peak, q.n)
	*q.at(q.n - 1) = v
}

// pop removes the first element; the queue must not be empty.
func (q *queue[T]) pop() T {
	var zero T
	p := q.at(0)
	v := *p
	*p = zero
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	if q.n == 0 {
		if q.low++; q.peak > len(q.buf)/4 {
			q.low = 0
		}
		if len(q.buf) > queueKeep && q.low >= queueRounds {
			q.buf, q.head, q.low = nil, 0, 0
		}
		q.peak = 0
	}
	return v
}

// move moves elements into dst and returns how many.
func (q *queue[T]) move(dst []T) (n int) {
	for ; n < len(dst) && q.n > 0; n++ {
		dst[n] = q.pop()
	}
	return n
}

// remove takes out the i-th element and keeps the order of the others.
func (q *queue[T]) remove(i int) T {
	v := *q.at(i)
	for ; i > 0; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	q.pop()
	return v
}
