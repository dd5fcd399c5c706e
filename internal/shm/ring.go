package shm

import (
	"errors"
	"fmt"
)

// ErrIndex says that the other side published a ring index that no correct program
// publishes. The ring cannot be used any more.
var ErrIndex = errors.New("impossible ring index")

// ring is the shared part of a single-producer, single-consumer queue of T in shared
// memory. The indices count entries without wrapping: entry i is at i mod size. Each index
// has a cache line of its own, so that writing one does not disturb the other side.
type ring[T any] struct {
	entries []T       // a power of two
	head    *position // written by the consumer: entries taken
	tail    *position // written by the producer: entries published
}

func (r *ring[T]) at(i uint64) *T { return &r.entries[i&uint64(len(r.entries)-1)] }

// producer is the writing end's private state. The producer never reads its own index back
// from shared memory, because the other side could have changed it.
type producer[T any] struct {
	ring  *ring[T]
	next  uint64 // next entry to fill
	tail  uint64 // as published
	head  uint64 // the consumer's index at the last look
	bad   uint64 // the index that broke the ring
	isBad bool
	_     [64]byte // keeps the two ends' private states on different cache lines
}

// look reads the consumer's index again. A correct one lies between the last one seen and
// what was published.
func (w *producer[T]) look() {
	h := w.ring.head.Load()
	if h-w.head > w.tail-w.head {
		w.bad, w.isBad = h, true
		return
	}
	w.head = h
}

// free is how many entries can be filled. It reads the consumer's index only if its copy
// leaves a quarter of the ring or less. So a result up to a quarter is exact, and a larger
// one may be too low.
func (w *producer[T]) free() int {
	size := uint64(len(w.ring.entries))
	if w.next-w.head >= size-size/4 && !w.isBad {
		w.look()
	}
	if w.isBad {
		return 0
	}
	return int(size - (w.next - w.head))
}

// freeAtLeast reports whether n entries can be filled. It reads the consumer's index if its copy leaves
// less, so false is exact.
func (w *producer[T]) freeAtLeast(n int) bool {
	size := uint64(len(w.ring.entries))
	if size-(w.next-w.head) < uint64(n) && !w.isBad {
		w.look()
	}
	return size-(w.next-w.head) >= uint64(n) && !w.isBad
}

func (w *producer[T]) reserve() *T {
	if w.next-w.head >= uint64(len(w.ring.entries)) || w.isBad {
		if w.free() == 0 {
			return nil
		}
	}
	e := w.ring.at(w.next)
	w.next++
	return e
}

// Publish makes all reserved entries visible to the consumer.
func (w *producer[T]) Publish() {
	if w.next != w.tail {
		w.tail = w.next
		w.ring.tail.Store(w.tail)
	}
}

// Err returns an ErrIndex after the consumer published an impossible index. The ring stays
// full then.
func (w *producer[T]) Err() error {
	if !w.isBad {
		return nil
	}
	return fmt.Errorf("%w: head %d with %d taken and %d published", ErrIndex, w.bad, w.head, w.tail)
}

// consumer is the reading end's private state.
type consumer[T any] struct {
	ring  *ring[T]
	next  uint64 // next entry to take
	head  uint64 // as published
	tail  uint64 // the producer's index at the last look
	bad   uint64
	isBad bool
	_     [64]byte
}

// look reads the producer's index again. A correct one lies between the last one seen and
// one ring beyond what was released.
func (t *consumer[T]) look() {
	tail := t.ring.tail.Load()
	if tail-t.tail > uint64(len(t.ring.entries))-(t.tail-t.head) {
		t.bad, t.isBad = tail, true
		t.tail = t.next // entries that were published before are not read either
		return
	}
	t.tail = tail
}

// peek returns the next entry, or nil if there is none.
func (t *consumer[T]) peek() *T {
	if t.next == t.tail {
		if t.isBad {
			return nil
		}
		if t.look(); t.next == t.tail {
			return nil
		}
	}
	return t.ring.at(t.next)
}

// Avail takes a fresh look and returns how many entries there are to take.
func (t *consumer[T]) Avail() int {
	if !t.isBad {
		t.look()
	}
	return int(t.tail - t.next)
}

// Published takes a fresh look and returns the position behind the last published entry.
// See Taken.
func (t *consumer[T]) Published() uint64 {
	t.Avail()
	return t.tail
}

// Taken reports whether all entries before position pos have been taken. It is true for a
// broken ring, which has nothing left to take.
func (t *consumer[T]) Taken(pos uint64) bool { return t.isBad || int64(t.next-pos) >= 0 }

// Empty takes a fresh look and reports whether there is nothing to take. It is the last
// look before a sleep that has been announced.
func (t *consumer[T]) Empty() bool { return t.Avail() == 0 }

// Release gives the entries taken so far back to the producer.
func (t *consumer[T]) Release() {
	if t.next != t.head {
		t.head = t.next
		t.ring.head.Store(t.head)
	}
}

// Err returns an ErrIndex after the producer published an impossible index. The ring stays
// empty then.
func (t *consumer[T]) Err() error {
	if !t.isBad {
		return nil
	}
	return fmt.Errorf("%w: tail %d with %d taken of a ring of %d", ErrIndex, t.bad, t.next, len(t.ring.entries))
}

// Producer is the writing end of a ring of descriptors. It belongs to one
// goroutine at a time.
type Producer struct{ producer[Entry] }

// Reserve returns the next free entry for the caller to fill, or nil if the ring is full.
// Several may be reserved before one Publish. The entry has old content, so the caller has
// to assign all of it.
func (p *Producer) Reserve() *Entry { return p.reserve() }

// Free is how many entries Reserve would return. A result of up to a quarter of the ring is
// exact. A larger one may be too low, never too high.
func (p *Producer) Free() int { return p.free() }

// FreeAtLeast reports whether Reserve would return n entries, exactly. A caller that goes on only with more than
// a quarter of the ring has to ask this way: Free would never look again.
func (p *Producer) FreeAtLeast(n int) bool { return p.freeAtLeast(n) }

// Unpublished is how many entries were reserved since the last Publish.
func (p *Producer) Unpublished() int { return int(p.next - p.tail) }

// Reserved returns entry i of those that were reserved since the last Publish.
func (p *Producer) Reserved(i int) *Entry { return p.ring.at(p.tail + uint64(i)) }

// HalfFree takes a fresh look and reports whether half of the ring is free. It is the last
// look of a producer that has announced that it sleeps until there is room.
func (p *Producer) HalfFree() bool {
	if !p.isBad {
		p.look()
	}
	return 2*p.free() >= len(p.ring.entries)
}

// Consumer is the reading end of a ring of descriptors. It belongs to one
// goroutine at a time.
type Consumer struct{ consumer[Entry] }

// Next copies the next entry to dst, reading it once, so that later changes by the producer
// have no effect. It returns false if the ring is empty.
func (c *Consumer) Next(dst *Entry) bool {
	e := c.peek()
	if e == nil {
		return false
	}
	*dst = *e
	c.next++
	return true
}

// HalfTaken reports whether, by the last look, at most half of the ring is left to take.
// Then a producer that sleeps until there is room has to be woken.
func (c *Consumer) HalfTaken() bool { return 2*(c.tail-c.next) <= uint64(len(c.ring.entries)) }

// IDProducer is the writing end of a return ring.
type IDProducer struct{ producer[uint32] }

// Put queues id and reports whether there was room. The consumer sees it after Publish.
func (i *IDProducer) Put(id uint32) bool {
	e := i.reserve()
	if e == nil {
		return false
	}
	*e = id
	return true
}

// IDConsumer is the reading end of a return ring.
type IDConsumer struct{ consumer[uint32] }

// Take returns the next id. ok is false if there is none.
func (j *IDConsumer) Take() (id uint32, ok bool) {
	e := j.peek()
	if e == nil {
		return 0, false
	}
	id = *e
	j.next++
	return id, true
}

// Pending reports whether entries have been reserved and not yet published.
func (w *producer[T]) Pending() bool { return w.next != w.tail }

// The values that a side announces before it sleeps.
const (
	Awake  = 0
	Asleep = 1
	// AsleepForEvents is announced by a client in which nobody waits for returned message
	// ids. They need not wake it.
	AsleepForEvents = 2
	// AsleepForRoom is announced by a daemon that also waits until half of the event ring
	// is free.
	AsleepForRoom = 2
)

// WakeNeeded is the producer's half of the sleep protocol. The producer calls it after
// Publish. It reports whether the consumer has announced sleep and no other producer rings
// for it. The swap makes sure that only one of several producers rings.
//
// The consumer's half: it stores 1, checks all its rings with Empty, blocks only if all are
// empty, and stores 0 when it is awake again. The same holds for a producer that sleeps
// until there is room: the consumer releases before it calls WakeNeeded, and the producer's
// last look is also at Free.
func WakeNeeded(asleep *Announcement) bool {
	return asleep.Load() != Awake && asleep.Swap(Awake) != Awake
}

// WakeForRoom is WakeNeeded for a client that has published nothing, but has released
// events so that at most half of the ring is left to take.
func WakeForRoom(asleep *Announcement) bool {
	return asleep.Load() == AsleepForRoom && asleep.CompareAndSwap(AsleepForRoom, Awake)
}

// WakeForReturns is WakeNeeded for a producer that has published only returned message ids.
func WakeForReturns(asleep *Announcement) bool {
	return asleep.Load() == Asleep && asleep.CompareAndSwap(Asleep, Awake)
}
