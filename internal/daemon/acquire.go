package daemon

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// What the daemon acquires for its sessions, each behind its fail point. The name of a
// memory file is its fail point's.

// createStats makes the statistics file and the file of the lists. If the file system has
// no room, createStats removes the files of a daemon that was killed and tries again. If
// before is not 0, it makes them aside, while the process before has its own.
func createStats(path, lists string, before int) (f, l *stats.File, err error) {
	create := func() (err error) {
		if f, err = stats.CreateAside(path, before); err != nil {
			return err
		}
		if before == 0 {
			_ = os.Remove(config.OldListsPath(path))
		}
		if l, err = stats.CreateListsAside(lists, before); err != nil {
			f.Close()
			return err
		}
		if before != 0 {
			return nil
		}
		if err = errors.Join(l.Own(), f.Own()); err != nil {
			l.Close()
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

// adoptMemfd maps a memory file that another daemon made.
func adoptMemfd(name string, fd, size int) (*shm.Mapping, error) {
	if err := failpoint.Hit(name); err != nil {
		return nil, err
	}
	return shm.AdoptMemfd(fd, size)
}

// adoptImport maps memory of a process that another daemon had mapped. See shm.AdoptImport.
func adoptImport(i *shm.Import) (file *shm.Mapping, sealed, err error) {
	if err := failpoint.Hit(failpoint.Import); err != nil {
		return nil, nil, err
	}
	if file, sealed, err = shm.AdoptImport(i); err == nil {
		err = guarded(file)
	}
	return file, sealed, err
}

func mapImport(i *shm.Import) (*shm.Mapping, error) {
	if err := failpoint.Hit(failpoint.Import); err != nil {
		return nil, err
	}
	file, err := shm.MapImport(i)
	if err == nil {
		err = guarded(file)
	}
	return file, err
}

// guarded guards file, which the process may cut short. After an error file is closed.
func guarded(file *shm.Mapping) error {
	err := file.Guard()
	if err != nil {
		_ = file.Close()
	}
	return err
}

func newDoorbell(point string) (*shm.Doorbell, error) {
	if err := failpoint.Hit(point); err != nil {
		return nil, err
	}
	return shm.NewDoorbell()
}

// takeDoorbell takes over the ends that the daemon has of a doorbell that another daemon made.
// recv is -1 if the process has that end.
func takeDoorbell(recv, send int) (*shm.Doorbell, error) {
	point := failpoint.DaemonDoorbell
	if recv < 0 {
		point = failpoint.ClientDoorbell
	}
	if err := failpoint.Hit(point); err != nil {
		return nil, err
	}
	return shm.AdoptDoorbell(recv, send)
}

// mapAnon returns n bytes of page-aligned memory that cost nothing until they are
// touched. It panics if the address space is full.
func mapAnon(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("no address space for %d bytes: %v", n, err))
	}
	return b
}

func unmapAnon(b []byte) {
	if b != nil {
		_ = unix.Munmap(b)
	}
}

// filesLimit returns how many files the daemon may open. The runtime has raised the limit as far
// as it may.
func filesLimit() uint64 {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxUint64
	}
	return files.Cur
}

// filesWarning says that nearly as many files as limit are open, "" = not so. Lower numbers are used
// first, so the lowest one that is free is near the limit only then.
func filesWarning(limit uint64) string {
	free, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(free)
	}
	if err != unix.EMFILE && (err != nil || uint64(free) < limit-limit/10) {
		return ""
	}
	return fmt.Sprintf("nearly all of %d descriptors are in use: processes and peers that come are refused; raise LimitNOFILE= (ulimit -n)", limit)
}
