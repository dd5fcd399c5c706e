package pcapng

import (
	"errors"
	"os"
	"time"
)

// CreateTap makes a Tap that records into a new file, with the system's clock. done closes
// the file and returns the first error since.
func CreateTap(name string) (t *Tap, done func() error, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, nil, err
	}
	t, err = NewTap(f, func() int64 { return time.Now().UnixNano() })
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return t, func() error { return errors.Join(t.Err(), f.Close()) }, nil
}
