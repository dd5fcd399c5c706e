package stress

import (
	"sync"
	"time"
)

// maxKeys are remembered; then the meter begins anew.
const maxKeys = 32 << 10

// keyMeter tells how soon keys are issued again: the sooner, the sooner a late
// operation could meet a region it was not meant for.
type keyMeter struct {
	mu       sync.Mutex
	issued   map[uint32]time.Time
	again    int
	min, sum time.Duration
}

func (k *keyMeter) add(key uint32, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last, ok := k.issued[key]; ok {
		d := now.Sub(last)
		if k.again == 0 || d < k.min {
			k.min = d
		}
		k.again++
		k.sum += d
	}
	if k.issued == nil || len(k.issued) >= maxKeys {
		k.issued = make(map[uint32]time.Time)
	}
	k.issued[key] = now
}

// take says how many keys were issued again since the last call, and how far
// apart.
func (k *keyMeter) take() (n int, min, mean time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.again > 0 {
		n, min, mean = k.again, k.min, k.sum/time.Duration(k.again)
	}
	k.again, k.min, k.sum = 0, 0, 0
	return n, min, mean
}
