// Package sandbox takes rights away from the whole process, for good: access to files and
// listening ports, capabilities and new privileges that a running daemon does not need. If
// the kernel does not support a restriction, the process runs without it and the Report
// says so. go-landlock and libcap restrict all threads, those of C libraries, too.
package sandbox

import (
	"fmt"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Rules say which rights the process keeps.
type Rules struct {
	Read  []string // files and folders that may be read; those that do not exist are left out
	Write []string // folders in which files may be made, written and removed
	// Capabilities are the capabilities to keep, if the process has them.
	Capabilities []cap.Value
}

// Report says what Apply did.
type Report struct {
	Files        string // "" = restricted by Landlock; else why not
	Capabilities string // "" = dropped; else why not
}

func (r Report) String() string {
	say := func(what, did, why string) string {
		if why == "" {
			return what + " " + did
		}
		return what + " not " + did + " (" + why + ")"
	}
	return say("files", "restricted", r.Files) + ", " + say("capabilities", "dropped", r.Capabilities)
}

// Apply restricts all threads of the process, present and future. It cannot be undone and
// does not fail. The Report names what the kernel does not allow.
func Apply(r Rules) Report {
	var out Report
	if err := ll.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		out.Files = fmt.Sprintf("no new privileges: %v", err)
		out.Capabilities = out.Files
		return out
	}
	if err := restrict(r); err != nil {
		out.Files = err.Error()
	}
	if err := dropCapabilities(r.Capabilities); err != nil {
		out.Capabilities = err.Error()
	}
	return out
}

// NoNewPrivileges keeps the process from gaining privileges by running programs, and changes
// nothing else. It is for a process that has an RDMA device open: the kernel takes requests
// at such a device only from threads with the credentials that opened it
// (ib_safe_file_access), and Landlock and capset give each thread credentials of its own.
// The text says what holds.
func NoNewPrivileges() string {
	if err := ll.AllThreadsPrctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "off (an RDMA device is open; no new privileges: " + err.Error() + ")"
	}
	return "no new privileges; files and capabilities not restricted (an RDMA device is open)"
}

const (
	readFile  = ll.AccessFSReadFile
	readAll   = readFile | ll.AccessFSReadDir
	writeFile = ll.AccessFSWriteFile | ll.AccessFSTruncate
	change    = ll.AccessFSRemoveFile | ll.AccessFSMakeReg | ll.AccessFSMakeSock
	// handled is the rights of files that Rules give. Rights that are not handled, such as
	// ioctl on devices, stay allowed.
	handled = ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeChar | ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSock | ll.AccessFSMakeFifo | ll.AccessFSMakeBlock | ll.AccessFSMakeSym |
		ll.AccessFSRefer | ll.AccessFSTruncate
)

// restrict applies Landlock, as much of it as the kernel knows.
func restrict(r Rules) error {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		return fmt.Errorf("no Landlock in this kernel: %w", err)
	}
	config, err := landlock.NewConfig(landlock.AccessFSSet(handled), landlock.AccessNetSet(ll.AccessNetBindTCP), landlock.ScopedSet(ll.ScopeSignal))
	if err != nil {
		return err
	}
	rules := []landlock.Rule{landlock.BindTCP(0)} // what connections to others start from
	for _, p := range r.Read {
		rules = append(rules, path(p, readAll, readFile))
	}
	for _, p := range r.Write {
		rules = append(rules, path(p, readAll|writeFile|change, readFile|writeFile))
	}
	return config.BestEffort().Restrict(rules...)
}

// path allows what is at p: a folder with all below it, or a file, which has no rights of
// folders.
func path(p string, folder, file landlock.AccessFSSet) landlock.Rule {
	access := file
	if st, err := os.Stat(p); err == nil && st.IsDir() {
		access = folder
	}
	return landlock.PathAccess(access, p).IgnoreIfMissing()
}

// dropCapabilities drops all capabilities that are not in keep.
func dropCapabilities(keep []cap.Value) error {
	has := cap.GetProc()
	want := cap.NewSet()
	for _, c := range keep {
		for _, flag := range []cap.Flag{cap.Permitted, cap.Effective} {
			if on, err := has.GetFlag(flag, c); err == nil && on {
				if err := want.SetFlag(flag, true, c); err != nil {
					return fmt.Errorf("capabilities: %w", err)
				}
			}
		}
	}
	if diff, err := has.Cf(want); err != nil || diff == 0 {
		return err // nothing to drop, and a system call filter may forbid the call
	}
	if err := want.SetProc(); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
