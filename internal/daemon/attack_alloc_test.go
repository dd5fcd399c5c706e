package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// TestAllocationStorm: processes of one user ask for much memory and are gone
// before it is made. A process of another user attaches and gets memory while
// they wait; one of theirs makes memory at a time, and for those that are gone
// none is made.
func TestAllocationStorm(t *testing.T) {
	var uid atomic.Uint32
	d := startDaemonOf(t, nil, func(c *ipc.Conn) ipc.Cred {
		id := c.Peer()
		id.UID = uid.Load()
		return id
	})
	p := d.populator
	made := func() (n uint64, most, here int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.made, p.most, p.here[config.UserAccount(1001)]
	}
	present := func(what string, want int) {
		t.Helper()
		eventually(t, what, func() error {
			if _, _, here := made(); here != want {
				return fmt.Errorf("%d of them, want %d", here, want)
			}
			return nil
		})
	}
	uid.Store(1001)
	const processes, requests = 8, 50
	var storm []*proc
	for range processes {
		storm = append(storm, attached(t, d))
	}
	leave := takesTurn(t, d, 1001) // as if one of the user's were at it
	before, _, _ := made()
	for _, a := range storm {
		for i := range uint32(requests) {
			a.write(ipc.AppendFrame(nil, 100+i, &ipc.Alloc{Size: 4 << 20}))
		}
	}
	present("the processes wait for each other", processes+1)
	for _, a := range storm {
		a.close()
	}
	uid.Store(1002)
	victim := attached(t, d)
	b := victim.call(&ipc.Alloc{Size: 1 << 20})
	if _, ok := b.Body.(*ipc.AllocOK); !ok {
		t.Errorf("another user's memory: %+v", b.Body)
	}
	b.CloseFDs()
	if err := victim.ping(); err != nil {
		t.Error(err)
	}
	after, _, _ := made()
	leave()
	present("the processes are gone", 0)
	if n, most, _ := made(); n != after || most > maxPopulating {
		t.Errorf("memory made %d times for processes that are gone, %d sessions at one time; %d times before, want 0 and at most %d", n-after, most, before, maxPopulating)
	}
}

// takesTurn has nobody else of a user make memory until leave is called.
func takesTurn(t testing.TB, d *Daemon, uid uint32) (leave func()) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	f := os.NewFile(uintptr(fds[0]), "pair")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ipc.NewConn(c.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	leave, err = d.populator.enter(d.newConnection(conn, ipc.Cred{UID: uid}))
	if err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(leave)
	t.Cleanup(leave)
	return leave
}

// cgroupFiles is a root file system with these cgroup files.
func cgroupFiles(t *testing.T, self string, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["proc/self/cgroup"] = self
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestCgroups: what the daemon's cgroup, or one above it, has left bounds the memory
// of clients before the kernel ends the daemon. One user has half of it, and of several each may have
// an equal part.
func TestCgroups(t *testing.T) {
	const mib = 1 << 20
	v2 := map[string]string{
		"sys/fs/cgroup/a/memory.max": "167772160\n", "sys/fs/cgroup/a/memory.current": "62914560\n", // 160, 60 MiB
		"sys/fs/cgroup/a/memory.stat":  "anon 1\nfile 9\ninactive_file 10485760\nactive_file 10485760\n", // 20 MiB of files
		"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "1\n",
	}
	v1 := map[string]string{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "167772160\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "41943040\n",
		"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}
	for name, root := range map[string]string{"version 2": cgroupFiles(t, "0::/a/b\n", v2), "version 1": cgroupFiles(t, "3:memory:/a/b\n0::/x\n", v1)} {
		r := openCgroups(root)
		if r == nil {
			t.Fatalf("%s: none", name)
		}
		defer r.close()
		if left, limit := r.left(); left != 120*mib || limit != 160*mib {
			t.Errorf("%s: %d left of %d", name, left, limit)
		}
		root, other := quota.Daemon, &quota.User{UID: 1000, Account: config.UserAccount(1000)}
		for _, tc := range []struct {
			u    *quota.User
			need need
			says string
		}{
			{root, need{size: 100 * mib, own: 500 * mib, mapped: 40 * mib}, ""}, // 20 MiB are the daemon's
			{root, need{size: 101 * mib, own: 101 * mib}, "bytes asked"},
			{root, need{size: 100 * mib, own: 100 * mib, mapped: 41 * mib}, "bytes asked"},
			{root, need{size: 100 * mib, own: 100 * mib, mapped: 1 * mib, buffers: 40 * mib}, "bytes asked"},
			{root, need{size: 60 * mib, own: 60 * mib, pending: 50 * mib}, "bytes asked"},
			{other, need{size: 32 * mib, own: 64 * mib}, ""},
			{other, need{size: 32 * mib, own: 128 * mib}, "uid 1000 would have"},
			{other, need{size: 32 * mib, own: 71 * mib, mapped: 80 * mib}, "uid 1000 would have"},
			{other, need{size: 32 * mib, own: 70 * mib, mapped: 80 * mib}, ""}, // an equal part
			{other, need{size: 32 * mib, own: 64 * mib, mapped: 80 * mib, buffers: 20 * mib}, "uid 1000 would have"},
			{other, need{size: 32 * mib, own: 61 * mib, mapped: 80 * mib, users: 3}, "uid 1000 would have"},
			{other, need{size: 61 * mib, own: 61 * mib, mapped: 80 * mib}, "bytes asked"},
		} {
			if tc.need.users == 0 {
				tc.need.users = 1
			}
			err := r.fits(tc.u, tc.need)
			if tc.says == "" && err != nil || tc.says != "" && (!errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: %+v: %v, want %q", name, tc.need, err, tc.says)
			}
		}
	}
	if r := openCgroups(t.TempDir()); r != nil || r.fits(quota.Daemon, need{size: 1 << 40, own: 1 << 40}) != nil || r.pools() != 0 {
		t.Errorf("without cgroups: %+v", r)
	}
}

// TestCgroupChanged: a limit that is set, changed and taken away while the daemon runs holds from
// then on.
func TestCgroupChanged(t *testing.T) {
	const mib = 1 << 20
	root := cgroupFiles(t, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "0\n"})
	r := openCgroups(root)
	defer r.close()
	for _, tc := range []struct {
		max   string
		fits  bool
		pools int
	}{{"max", true, 0}, {"167772160", false, 40 * mib}, {"1677721600", true, 400 * mib}, {"max", true, 0}} {
		if err := os.WriteFile(filepath.Join(root, "sys/fs/cgroup/a/memory.max"), []byte(tc.max+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.fits(quota.Daemon, need{size: 300 * mib, own: 300 * mib}); (err == nil) != tc.fits {
			t.Errorf("300 MiB with a limit of %s: %v", tc.max, err)
		}
		if n := r.pools(); n != tc.pools {
			t.Errorf("%d bytes for pools with a limit of %s", n, tc.max)
		}
	}
}

// A daemon in a cgroup that is too small says so, and Alloc and Hello fail with
// ENOMEM and the cure.
func TestSmallCgroup(t *testing.T) {
	d := startDaemon(t, func(*config.Config) {})
	p := attached(t, d)
	root := cgroupFiles(t, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.current": "910163968\n"})
	d.populator.mu.Lock()
	d.populator.cgroups = openCgroups(root)
	d.populator.mu.Unlock()
	(&opening{Daemon: d}).warnOfCgroup()
	if n := len(d.warnings); n == 0 || !strings.Contains(d.warnings[n-1], "memory cgroup has 156 MiB left of 1024") {
		t.Errorf("warnings %q", d.warnings)
	}
	e, ok := p.call(&ipc.Alloc{Size: 64 << 20}).Body.(*ipc.Err)
	if !ok || e.Errno != uint32(unix.ENOMEM) || !strings.Contains(e.Text, "MemoryMax=") {
		t.Errorf("Alloc: %+v", e)
	}
	b := p.call(&ipc.Alloc{Size: 1 << 20})
	if _, ok := b.Body.(*ipc.AllocOK); !ok {
		t.Errorf("a small buffer: %+v", b.Body)
	}
	b.CloseFDs()
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestCgroupPools: the engine's pools come to a quarter of the cgroup's limit at most, so that there is
// memory for processes in a small one.
func TestCgroupPools(t *testing.T) {
	root := cgroupFiles(t, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": "268435456\n", "sys/fs/cgroup/a/memory.current": "0\n"})
	c := openCgroups(root)
	defer c.close()
	if n := c.pools(); n != 64<<20 {
		t.Errorf("%d bytes of 256 MiB", n)
	}
	if n := (*cgroups)(nil).pools(); n != 0 {
		t.Errorf("%d bytes without a limit, want no bound", n)
	}
}

// TestCgroupHoles: memory into which its process has punched holes counts in the daemon's
// cgroup as if it were full, because the daemon's next access fills it.
func TestCgroupHoles(t *testing.T) {
	const each = 16 << 20
	d, _ := usersDaemon(t, nil)
	own := d.engine.OwnMemory()
	limit := 2 * (own + 10*each) // an eighth of which is the daemon's
	root := cgroupFiles(t, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": fmt.Sprint(limit), "sys/fs/cgroup/a/memory.current": "0\n"})
	d.populator.mu.Lock()
	d.populator.cgroups = openCgroups(root)
	d.populator.mu.Unlock()
	p := attached(t, d)
	had := uint64(0)
	for {
		m := p.call(&ipc.Alloc{Size: each})
		if e, ok := m.Body.(*ipc.Err); ok {
			if e.Errno != uint32(unix.ENOMEM) || !strings.Contains(e.Text, "cgroup") {
				t.Errorf("%+v", e)
			}
			break
		}
		if had += each; had > limit {
			t.Fatalf("%d bytes of a cgroup of %d", had, limit)
		}
		m.CloseFDs() // memory.current stays at 0, as if the process had punched it all
	}
	if had == 0 || had > limit-limit/8-own {
		t.Errorf("%d bytes (own %d), want some, and at most %d", had, own, limit-limit/8-own)
	}
	if err := p.ping(); err != nil {
		t.Error(err)
	}
}

// TestCgroupRecords: what the daemon may come to remember of processes counts in its cgroup while
// they are attached, and no longer.
func TestCgroupRecords(t *testing.T) {
	d, _ := usersDaemon(t, nil)
	held := func() uint64 { return d.engine.Memory().Sum().Records }
	each := engine.RecordBytes(fewParams)
	p := attached(t, d)
	if n := held(); n != each || each == 0 {
		t.Fatalf("%d bytes for one process, want %d", n, each)
	}
	more := fewParams
	more.MaxMsgs = 1 << 16
	all := d.engine.Memory().Sum()
	limit := (d.engine.OwnMemory() + all.Shared + all.Records + engine.RecordBytes(more)) * 8 / 7 // without its rings
	root := cgroupFiles(t, "0::/a\n", map[string]string{"sys/fs/cgroup/a/memory.max": fmt.Sprint(limit), "sys/fs/cgroup/a/memory.current": "0\n"})
	d.populator.mu.Lock()
	d.populator.cgroups = openCgroups(root)
	d.populator.mu.Unlock()
	greedy := dialRaw(t, d)
	if e, ok := greedy.call(&ipc.Hello{Role: ipc.RoleClient, Params: more}).Body.(*ipc.Err); !ok || e.Errno != uint32(unix.ENOMEM) || !strings.Contains(e.Text, "cgroup") {
		t.Errorf("records of %d bytes in a cgroup of %d: %+v", engine.RecordBytes(more), limit, e)
	}
	greedy.close()
	eventually(t, "those of the refused process count no more", func() error {
		if n := held(); n != each {
			return fmt.Errorf("%d bytes, want %d", n, each)
		}
		return nil
	})
	p.close()
	eventually(t, "nothing counts", func() error {
		if n := held(); n != 0 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
}

// TestStatsOfKilledDaemon: what a killed daemon left in a file system without
// room for two does not keep the next one from starting.
func TestStatsOfKilledDaemon(t *testing.T) {
	dir := t.TempDir()
	size := stats.Size + stats.ListSize
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size+size/4)); err != nil {
		t.Skip("no file system of the test's own: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	path := dir + "/s.stats"
	lists := config.ListsPath(path)
	for name, n := range map[string]int{path: stats.Size, lists: stats.ListSize} {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(n)); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	f, l, err := createStats(path, lists, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	f.Close()
}
