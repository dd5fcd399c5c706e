package ledger

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// network is where the daemons run. It is a namespace with a loopback device whose packets can
// be dropped, or the host's loopback where that is not permitted. One thread that never ends
// starts all processes: it is in the namespace, and its children die with it.
type network struct {
	missing string // why it is the host's loopback, "" if it is not
	calls   chan func()

	mu    sync.Mutex
	drops map[[2]netip.Addr]int // percent of the packets between two addresses; guarded by mu
}

func newNetwork() *network {
	n := &network{calls: make(chan func()), drops: map[[2]netip.Addr]int{}}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		n.missing = enter()
		close(ready)
		for f := range n.calls {
			f()
		}
	}()
	<-ready
	return n
}

// enter puts the calling thread into a network namespace of its own. It returns the reason if it
// cannot.
func enter() string {
	if os.Getuid() != 0 {
		return "network namespaces need root"
	}
	for tool, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("%s is not installed: apt-get install -y --no-install-recommends %s", tool, pkg)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Sprintf("a network namespace: %v", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Sprintf("ip link set lo up: %v: %s", err, out)
	}
	if err := nft("add table inet ledger\nadd chain inet ledger in { type filter hook input priority 0; }\n" +
		"add rule inet ledger in ip saddr 127.0.0.1 numgen random mod 100 < 1 drop\nflush chain inet ledger in\n"); err != nil {
		return err.Error()
	}
	return ""
}

func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, &errs)
	}
	return nil
}

// do runs f on the network's thread.
func (n *network) do(f func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- f() }
	return <-done
}

// drop makes percent of the packets between a and b disappear, in both directions.
func (n *network) drop(a, b netip.Addr, percent int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drops[[2]netip.Addr{a, b}] = percent
	script := "flush chain inet ledger in\n"
	for pair, p := range n.drops {
		if p == 0 {
			continue
		}
		which := fmt.Sprintf("numgen random mod 100 < %d ", p)
		if p == 100 {
			which = "" // all packets
		}
		for i := range 2 {
			script += fmt.Sprintf("add rule inet ledger in ip saddr %v ip daddr %v %sdrop\n", pair[i], pair[1-i], which)
		}
	}
	return n.do(func() error { return nft(script) })
}
