package daemon

import (
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
)

// What sessions acquire, each behind its fail point. The name of a memory file
// is its fail point's.

func createMemfd(name string, size int) (*shm.Mapping, error) {
	if err := failpoint.Hit(name); err != nil {
		return nil, err
	}
	return shm.CreateMemfd(name, size)
}

func createMemfdReadOnly(name string, size int) (*shm.Mapping, error) {
	if err := failpoint.Hit(name); err != nil {
		return nil, err
	}
	return shm.CreateMemfdReadOnly(name, size)
}

func newDoorbell(point string) (*shm.Doorbell, error) {
	if err := failpoint.Hit(point); err != nil {
		return nil, err
	}
	return shm.NewDoorbell()
}
