package rds

import (
	"runtime"
	"testing"
	"time"
)

// TestGive: who is about to sleep lets others run at first, and each time while
// there are some.
func TestGive(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, fresh := range map[string]func() *giver{
		"at first":      func() *giver { return &giver{} },
		"after a while": func() *giver { return &giver{last: time.Now().Add(-giveEvery)} },
		"busy":          func() *giver { return &giver{last: time.Now(), busy: true} },
	} {
		// Now and then the scheduler runs first who has just given way. It does
		// not do that three times in a row.
		ran := make(chan struct{}, 3)
		for range 3 {
			go func() { ran <- struct{}{} }()
			if fresh().give(); len(ran) > 0 {
				break
			}
		}
		if len(ran) == 0 {
			t.Errorf("%s: nobody else ran", name)
		}
	}
}
