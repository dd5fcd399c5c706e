package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrIndex is the errors.Is target when the other side published a ring index
// that no correct program can: the ring is unusable from then on.
var ErrIndex = errors.New("impossible ring index")

// ring is the shared part of a single-producer, single-consumer queue of T in
// shared memory. The indices run freely: entry i of the sequence is at
// i mod size. Each index lies on a line of its own, so that the two sides share
// a line only where one of them has news.
type ring[T any] struct {
	entries []T            // a power of two
	head    *atomic.Uint64 // written by the consumer: entries taken
	tail    *atomic.Uint64 // written by the producer: entries published
}

func (r *ring[T]) at(i uint64) *T { return &r.entries[i&uint64(len(r.entries)-1)] }

// producer is the writing end's private state. What it needs to know of its
// own index it never reads back from shared memory, where the other side could
// have changed it.
type producer[T any] struct {
	ring  *ring[T]
	next  uint64 // next entry to fill
	tail  uint64 // as published
	head  uint64 // the consumer's index when last looked at
	bad   uint64 // the index that broke the ring
	isBad bool
	_     [64]byte // keeps the two ends' private states off one line
}

// look reads the consumer's index anew. A correct one lies between the last
// one seen and what was published.
func (p *producer[T]) look() {
	h := p.ring.head.Load()
	if h-p.head > p.tail-p.head {
		p.bad, p.isBad = h, true
		return
	}
	p.head = h
}

// free counts the entries to fill. The consumer's index is read only when the
// copy of it leaves a quarter or less: above that the true number may be
// higher, below it is exact.
func (p *producer[T]) free() int {
	size := uint64(len(p.ring.entries))
	if p.next-p.head >= size-size/4 && !p.isBad {
		p.look()
	}
	if p.isBad {
		return 0
	}
	return int(size - (p.next - p.head))
}

func (p *producer[T]) reserve() *T {
	if p.next-p.head >= uint64(len(p.ring.entries)) || p.isBad {
		if p.free() == 0 {
			return nil
		}
	}
	e := p.ring.at(p.next)
	p.next++
	return e
}

// Publish makes all reserved entries visible to the consumer.
func (p *producer[T]) Publish() {
	if p.next != p.tail {
		p.tail = p.next
		p.ring.tail.Store(p.tail)
	}
}

// Err returns an ErrIndex once the consumer's index made no sense. The ring is
// full from then on.
func (p *producer[T]) Err() error {
	if !p.isBad {
		return nil
	}
	return fmt.Errorf("%w: head %d with %d taken and %d published", ErrIndex, p.bad, p.head, p.tail)
}

// consumer is the reading end's private state.
type consumer[T any] struct {
	ring  *ring[T]
	next  uint64 // next entry to take
	head  uint64 // as published
	tail  uint64 // the producer's index when last looked at
	bad   uint64
	isBad bool
	_     [64]byte
}

// look reads the producer's index anew. A correct one lies between the last
// one seen and one ring beyond what was released.
func (c *consumer[T]) look() {
	t := c.ring.tail.Load()
	if t-c.tail > uint64(len(c.ring.entries))-(c.tail-c.head) {
		c.bad, c.isBad = t, true
		c.tail = c.next // what was published before is not looked at either
		return
	}
	c.tail = t
}

// peek returns the next entry, nil when there is none.
func (c *consumer[T]) peek() *T {
	if c.next == c.tail {
		if c.isBad {
			return nil
		}
		if c.look(); c.next == c.tail {
			return nil
		}
	}
	return c.ring.at(c.next)
}

// Avail counts the entries to take, after a fresh look.
func (c *consumer[T]) Avail() int {
	if !c.isBad {
		c.look()
	}
	return int(c.tail - c.next)
}

// Published is, after a fresh look, the position behind the last entry
// published; see Taken.
func (c *consumer[T]) Published() uint64 {
	c.Avail()
	return c.tail
}

// Taken reports whether all entries before position pos have been taken. A
// broken ring has nothing left to take.
func (c *consumer[T]) Taken(pos uint64) bool { return c.isBad || int64(c.next-pos) >= 0 }

// Empty reports, after a fresh look, that there is nothing to take. It is the
// last look before a sleep that has been announced.
func (c *consumer[T]) Empty() bool { return c.Avail() == 0 }

// Release gives the entries taken so far back to the producer.
func (c *consumer[T]) Release() {
	if c.next != c.head {
		c.head = c.next
		c.ring.head.Store(c.head)
	}
}

// Err returns an ErrIndex once the producer's index made no sense. The ring is
// empty from then on.
func (c *consumer[T]) Err() error {
	if !c.isBad {
		return nil
	}
	return fmt.Errorf("%w: tail %d with %d taken of a ring of %d", ErrIndex, c.bad, c.next, len(c.ring.entries))
}

// Producer is the writing end of a ring of descriptors. It belongs to one
// goroutine at a time.
type Producer struct{ producer[Entry] }

// Reserve returns the next free entry, to be filled in place, or nil when the
// ring is full. Several may be reserved before one Publish. The entry holds
// what was there a round ago: assign it whole.
func (p *Producer) Reserve() *Entry { return p.reserve() }

// Free counts the entries that Reserve would give. A result of up to a
// quarter of the ring is exact; a larger one may be too low, never too high.
func (p *Producer) Free() int { return p.free() }

// Unpublished counts the entries that were reserved since the last Publish.
func (p *Producer) Unpublished() int { return int(p.next - p.tail) }

// HalfFree reports, after a fresh look, whether half of the ring is free. It is
// the last look of a producer that has announced that it sleeps until there is
// room.
func (p *Producer) HalfFree() bool {
	if !p.isBad {
		p.look()
	}
	return 2*p.free() >= len(p.ring.entries)
}

// Consumer is the reading end of a ring of descriptors. It belongs to one
// goroutine at a time.
type Consumer struct{ consumer[Entry] }

// Next copies the next entry to dst, once: what the producer does to the entry
// afterwards no longer matters. It returns false when the ring is empty.
func (c *Consumer) Next(dst *Entry) bool {
	e := c.peek()
	if e == nil {
		return false
	}
	*dst = *e
	c.next++
	return true
}

// HalfTaken reports whether at most half of the ring is left to take, as far as
// was seen: then a producer that sleeps until there is room is to be woken.
func (c *Consumer) HalfTaken() bool { return 2*(c.tail-c.next) <= uint64(len(c.ring.entries)) }

// IDProducer is the writing end of a return ring.
type IDProducer struct{ producer[uint32] }

// Put queues id and reports whether there was room. Publish makes it visible.
func (p *IDProducer) Put(id uint32) bool {
	e := p.reserve()
	if e == nil {
		return false
	}
	*e = id
	return true
}

// IDConsumer is the reading end of a return ring.
type IDConsumer struct{ consumer[uint32] }

// Take returns the next id; ok is false when there is none.
func (c *IDConsumer) Take() (id uint32, ok bool) {
	e := c.peek()
	if e == nil {
		return 0, false
	}
	id = *e
	c.next++
	return id, true
}

// Pending reports whether entries have been reserved and not yet published.
func (p *producer[T]) Pending() bool { return p.next != p.tail }

// What a side that sleeps has announced.
const (
	Awake  = 0
	Asleep = 1
	// AsleepForEvents is a client's announcement that nobody there waits for
	// returned message ids: they can wait until the client looks.
	AsleepForEvents = 2
	// AsleepForRoom is the daemon's announcement that it also waits for half of
	// the event ring to be free.
	AsleepForRoom = 2
)

// WakeNeeded is the producer's half of the sleep protocol: called after
// Publish, it reports whether the consumer has announced sleep and nobody else
// rings for it already. The swap lets one of several producers ring.
//
// The consumer's half: store 1, look at all its rings with Empty, and block
// only if they all are; store 0 when it is awake again. The same holds for a
// producer that sleeps until there is room: the consumer releases before it
// asks, and the last look is at Free, too.
func WakeNeeded(asleep *atomic.Uint32) bool {
	return asleep.Load() != Awake && asleep.Swap(Awake) != Awake
}

// WakeForRoom is WakeNeeded for a client that has published nothing: it has
// released events, and at most half of the ring is left to take.
func WakeForRoom(asleep *atomic.Uint32) bool {
	return asleep.Load() == AsleepForRoom && asleep.CompareAndSwap(AsleepForRoom, Awake)
}

// WakeForReturns is WakeNeeded for a producer that has published nothing but
// returned message ids.
func WakeForReturns(asleep *atomic.Uint32) bool {
	return asleep.Load() == Asleep && asleep.CompareAndSwap(Asleep, Awake)
}
