// Package sandbox takes rights away from the whole process, for good: access to files and
// listening ports, capabilities and new privileges that a running daemon does not need. If
// the kernel does not support a restriction, the process runs without it and the Report
// says so.
package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Rules say which rights the process keeps.
type Rules struct {
	Read  []string // files and folders that may be read; those that do not exist are left out
	Write []string // folders in which files may be made, written and removed
	// Capabilities are the capabilities (unix.CAP_*) to keep, if the process has them.
	Capabilities []uintptr
}

// Report says what Apply did.
type Report struct {
	Files        string // "" = restricted by Landlock; else why not
	Capabilities string // "" = dropped; else why not
}

func (r Report) String() string {
	say := func(what, why string) string {
		if why == "" {
			return what
		}
		return "not " + what + " (" + why + ")"
	}
	return say("files restricted", r.Files) + ", " + say("capabilities dropped", r.Capabilities)
}

// errThreads is because with cgo the runtime does not know all threads.
var errThreads = errors.New("a build with cgo cannot restrict all its threads")

// Apply restricts all threads of the process, present and future. It cannot be undone and
// does not fail. The Report names what the kernel or the build does not allow.
func Apply(r Rules) Report {
	var out Report
	if err := noNewPrivileges(); err != nil {
		out.Files, out.Capabilities = err.Error(), err.Error()
		return out
	}
	if err := landlock(r); err != nil {
		out.Files = err.Error()
	}
	if err := dropCapabilities(r.Capabilities); err != nil {
		out.Capabilities = err.Error()
	}
	return out
}

// allThreads makes a system call on every thread.
func allThreads(what string, trap, a1, a2, a3 uintptr) error {
	switch _, _, e := syscall.AllThreadsSyscall6(trap, a1, a2, a3, 0, 0, 0); e {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return errThreads
	default:
		return fmt.Errorf("%s: %w", what, e)
	}
}

func noNewPrivileges() error {
	return allThreads("no new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
}

const (
	readFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readAll   = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	change    = unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	// handled is all rights of the first version of Landlock.
	handled = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
)

// handledBy is the rights that a version of Landlock knows. Rights that are not handled
// stay allowed.
func handledBy(abi uintptr) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Access_fs: handled}
	if abi >= 2 {
		a.Access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		a.Access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		a.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if abi >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

func landlock(r Rules) error {
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return fmt.Errorf("no Landlock in this kernel: %w", e)
	}
	attr := handledBy(abi)
	fd, e := createRuleset(&attr)
	if e != 0 {
		return fmt.Errorf("landlock: %w", e)
	}
	defer unix.Close(int(fd))
	for _, p := range r.Read {
		if err := allow(fd, attr.Access_fs, p, readAll); err != nil {
			return err
		}
	}
	for _, p := range r.Write {
		if err := allow(fd, attr.Access_fs, p, readAll|writeFile|change|unix.LANDLOCK_ACCESS_FS_TRUNCATE); err != nil {
			return err
		}
	}
	if attr.Access_net != 0 { // port 0: what connections to others start from
		port := netPort{access: unix.LANDLOCK_ACCESS_NET_BIND_TCP}
		if e := addNetPort(fd, &port); e != 0 {
			return fmt.Errorf("landlock: ports: %w", e)
		}
	}
	return allThreads("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// allow adds the file or folder at path, and all below it, to the ruleset.
func allow(ruleset uintptr, known uint64, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR { // a file has no rights of folders
		access &= readFile | writeFile | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	a := unix.LandlockPathBeneathAttr{Allowed_access: access & known, Parent_fd: int32(fd)}
	if e := addPath(ruleset, &a); e != 0 {
		return fmt.Errorf("landlock: %s: %w", path, e)
	}
	return nil
}

// dropCapabilities drops all capabilities that are not in keep.
func dropCapabilities(keep []uintptr) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var mask [2]uint32
	for _, c := range keep {
		mask[c/32] |= 1 << (c % 32)
	}
	if d[0].Permitted&^mask[0]|d[1].Permitted&^mask[1]|d[0].Inheritable|d[1].Inheritable == 0 {
		return nil // nothing to drop, and a system call filter may forbid the call
	}
	for i := range d {
		d[i].Permitted &= mask[i]
		d[i].Effective &= mask[i]
		d[i].Inheritable = 0
	}
	h.Pid = 0
	return capset(&h, &d)
}

// Names are the paths of the rules, for a log.
func (r Rules) Names() string {
	return "read " + strings.Join(r.Read, " ") + ", write " + strings.Join(r.Write, " ")
}
