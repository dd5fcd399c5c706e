package stress

import (
	"sync"
	"time"
)

// maxKeys is how many keys the meter remembers. When it has as many, it drops all of them.
const maxKeys = 32 << 10

// keyMeter measures how soon keys are issued again. The sooner that happens, the sooner a
// late operation could reach a region that it is not for.
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

// take returns how many keys were issued again since the last call, and after how long.
func (k *keyMeter) take() (n int, min, mean time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.again > 0 {
		n, min, mean = k.again, k.min, k.sum/time.Duration(k.again)
	}
	k.again, k.min, k.sum = 0, 0, 0
	return n, min, mean
}
