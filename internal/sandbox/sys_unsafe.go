package sandbox

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netPort is struct landlock_net_port_attr.
type netPort struct{ access, port uint64 }

const ruleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// createRuleset returns the descriptor of a new ruleset.
func createRuleset(a *unix.LandlockRulesetAttr) (uintptr, syscall.Errno) {
	// A kernel that knows only a shorter structure accepts zeros at the end.
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a), 0)
	return fd, e
}

func addNetPort(ruleset uintptr, p *netPort) syscall.Errno {
	return addRule(ruleset, ruleNetPort, unsafe.Pointer(p))
}

func addPath(ruleset uintptr, a *unix.LandlockPathBeneathAttr) syscall.Errno {
	return addRule(ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(a))
}

func addRule(ruleset, kind uintptr, attr unsafe.Pointer) syscall.Errno {
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, kind, uintptr(attr), 0, 0, 0)
	return e
}

// capset sets the capabilities of every thread.
func capset(h *unix.CapUserHeader, d *[2]unix.CapUserData) error {
	err := allThreads("capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(&d[0])), 0)
	runtime.KeepAlive(h)
	runtime.KeepAlive(d)
	return err
}
