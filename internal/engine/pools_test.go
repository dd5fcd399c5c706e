package engine

import "testing"

// TestPoolsWithin: the pools come to no more than MaxPools, in the same proportion, and not below
// what a connection needs.
func TestPoolsWithin(t *testing.T) {
	for _, c := range []struct{ most, send, recv int }{
		{0, 4096, 16384},
		{1 << 30, 4096, 16384},
		{320 << 20, 2048, 8192},
		{1 << 20, 16, 64},
	} {
		cfg := Config{MaxPools: c.most}
		cfg.setDefaults()
		if cfg.SendBufs != c.send || cfg.RecvBufs != c.recv {
			t.Errorf("within %d bytes: %d and %d buffers, want %d and %d", c.most, cfg.SendBufs, cfg.RecvBufs, c.send, c.recv)
		}
	}
}
