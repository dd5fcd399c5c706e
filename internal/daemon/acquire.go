package daemon

import (
	"errors"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// What sessions acquire, each behind its fail point. The name of a memory file
// is its fail point's.

// createStats makes the statistics file and that of the lists. In a file system
// without room for them beside those of a daemon that was killed, these go
// first.
func createStats(path, lists string) (f, l *stats.File, err error) {
	create := func() (err error) {
		if f, err = stats.Create(path); err != nil {
			return err
		}
		if l, err = stats.CreateLists(lists); err != nil {
			f.Close()
		}
		return err
	}
	if err = create(); errors.Is(err, unix.ENOSPC) {
		stats.RemoveDead(path)
		stats.RemoveDead(lists)
		err = create()
	}
	if err != nil {
		return nil, nil, err
	}
	return f, l, nil
}

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
