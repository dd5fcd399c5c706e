package main

import (
	"context"
	"fmt"

	"github.com/rdsd/rdsd/internal/demo/verdict"
)

func (d *demo) peerCounts(ctx context.Context) (verdict.Counts, error) {
	var c verdict.Counts
	for _, h := range d.hosts {
		answer, err := d.ctl(ctx, h, "peers")
		if err != nil {
			return c, err
		}
		c.Add(answer.Peers)
	}
	return c, nil
}

// compare hashes the files and says which differs from the first.
func compare(ctx context.Context, names, paths []string) (sum string, err error) {
	for i, path := range paths {
		h, err := hashFile(ctx, path)
		if err != nil {
			return "", err
		}
		if i == 0 {
			sum = h
		} else if h != sum {
			return "", fmt.Errorf("%s has SHA-256 %s, %s has %s", names[i], h, names[0], sum)
		}
	}
	return sum, nil
}
