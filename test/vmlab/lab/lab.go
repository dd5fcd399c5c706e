// Package lab boots one or two emulated hosts that run Debian's own kernel, for tests that
// need a kernel's features: soft-RoCE (rdma_rxe), soft-iWARP (siw), libibverbs and
// librdmacm on them, kernel RDS over TCP and over RDMA, netem. It needs neither RDMA
// hardware nor KVM, but what `make vm` prepares.
//
// A host's root file system is that of the machine outside, read-only, with a RAM disk
// above it. So each program that is installed outside runs inside, with its libraries. All
// hosts and the test share the folder /xfer.
//
// The processor is emulated, and everything is 10 to 100 times slower. A lab is for
// correctness, and for comparing two programs side by side. Times measured in it mean
// nothing.
package lab

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// DirVariable names the folder that machine/setup.sh has filled.
const DirVariable = "RDSD_VMLAB"

// Config says which hosts to boot.
type Config struct {
	Hosts   int           // 1 (0 is 1) or 2; two are joined by an Ethernet link
	CPUs    int           // per host; 0: two for one host, one each for two
	MemMiB  int           // per host; 0: 1024
	Limit   time.Duration // how long the lab may run before its hosts are killed; 0: six minutes
	Capture bool          // record the link between two hosts in Lab.File("link.pcap")
}

// Lab is a running lab. It ends with its test.
type Lab struct {
	A, B  *Host  // B is nil in a lab with one host
	base  string // the folder of what boots
	dir   string
	hosts []*Host
	end   time.Time
	c     Config
}

//go:embed boot.sh
var bootScript []byte

const (
	bootLimit = 240 * time.Second // two hosts on a busy machine
	haltLimit = 10 * time.Second
	tail      = 6000 // how many bytes of a console are shown
)

// Boot starts the hosts and waits until they are ready. It skips the test if there is nothing to
// boot, and ends it if a host does not start.
func Boot(t *testing.T, c Config) *Lab {
	t.Helper()
	base := os.Getenv(DirVariable)
	if base == "" {
		t.Skip("needs a virtual machine: make vm")
	}
	c.defaults()
	dir, err := os.MkdirTemp("", "lab-") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{base: base, dir: dir, end: time.Now().Add(c.Limit), c: c}
	t.Cleanup(func() { l.close(t) })
	if err := os.WriteFile(l.File("boot"), bootScript, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range names[:c.Hosts] {
		h, err := l.start(name)
		if err != nil {
			t.Fatalf("host %s: %v", name, err)
		}
		l.hosts = append(l.hosts, h)
	}
	l.A = l.hosts[0]
	if c.Hosts == 2 {
		l.B = l.hosts[1]
	}
	for _, h := range l.hosts {
		if err := h.ready(); err != nil {
			t.Fatalf("host %s did not come up: %v", h.name, err)
		}
	}
	return l
}

// names of the hosts.
var names = []string{"A", "B"}

// PowerOff ends h at once, as a power failure does. Its jobs end with the status Gone, and its
// RAM disk is lost. What is in /xfer stays.
func (l *Lab) PowerOff(h *Host) {
	h.qemu.Process.Signal(os.Interrupt) // to timeout, which passes it on
	<-h.ended
	<-h.heard
	h.conn.Close()
}

// PowerOn boots h again after PowerOff.
func (l *Lab) PowerOn(t *testing.T, h *Host) {
	t.Helper()
	fresh, err := l.start(h.name)
	if err != nil {
		t.Fatalf("host %s: %v", h.name, err)
	}
	h.qemu, h.listener, h.ended = fresh.qemu, fresh.listener, fresh.ended
	if err := h.ready(); err != nil {
		t.Fatalf("host %s did not come up again: %v", h.name, err)
	}
}

func (c *Config) defaults() {
	if c.Hosts != 2 {
		c.Hosts = 1
	}
	if c.CPUs == 0 {
		c.CPUs = 3 - c.Hosts
	}
	if c.MemMiB == 0 {
		c.MemMiB = 1024
	}
	if c.Limit == 0 {
		c.Limit = 6 * time.Minute
	}
}

// Life returns the limit of a lab for work that takes d. In a long run (RDSD_VMLAB_LONG) that is
// two hours.
func Life(d time.Duration) time.Duration {
	if os.Getenv("RDSD_VMLAB_LONG") != "" {
		return 2 * time.Hour
	}
	return d
}

// File returns the path outside of /xfer/name.
func (l *Lab) File(name string) string { return filepath.Join(l.dir, name) }

// Hosts returns all hosts.
func (l *Lab) Hosts() []*Host { return l.hosts }

// start starts qemu for one host.
func (l *Lab) start(name string) (*Host, error) {
	base, c, names := l.base, l.c, names[:l.c.Hosts]
	release, err := os.ReadFile(filepath.Join(base, "release"))
	if err != nil {
		return nil, fmt.Errorf("%w: make vm", err)
	}
	modules := filepath.Join(base, "root/lib/modules")
	if _, err := os.Stat(filepath.Join(modules, strings.TrimSpace(string(release)))); err != nil {
		return nil, err
	}
	h := &Host{name: name, lab: l, jobs: map[int]*Job{}, ended: make(chan struct{})}
	port := l.File("port." + name)
	if h.listener, err = net.Listen("unix", port); err != nil {
		return nil, err
	}
	args := []string{strconv.Itoa(int(time.Until(l.end).Seconds()) + 1), "qemu-system-x86_64", // for timeout, which ends qemu even if this process is killed
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(c.CPUs), "-m", strconv.Itoa(c.MemMiB),
		"-nographic", "-no-reboot", "-nodefaults", "-monitor", "none", "-serial", "file:" + l.File("console."+name),
		"-kernel", filepath.Join(base, "vmlinuz"), "-initrd", filepath.Join(base, "lab.gz"),
		// tsc: the default clock, the HPET, is a device, which is slow to read in an emulated
		// processor. no_timer_check: an emulator that gets too little of the processor to keep the
		// timer's pace would be a kernel panic
		"-append", fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc no_timer_check lab_host=%s lab_hosts=%s lab_modules=%s",
			name, strings.Join(names, ","), modules),
		"-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap", "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
		"-fsdev", "local,id=xfer,path=" + l.dir + ",security_model=none,multidevs=remap", "-device", "virtio-9p-pci,fsdev=xfer,mount_tag=xfer",
		"-chardev", "socket,id=port,path=" + port, "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=lab",
	}
	if len(names) == 2 {
		other := names[0]
		if name == other {
			other = names[1]
		}
		args = append(args, "-netdev", fmt.Sprintf("dgram,id=n0,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s",
			l.File("link."+name), l.File("link."+other)),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:00:00:0%x", 10+name[0]-'A'))
		if c.Capture && name == names[0] {
			args = append(args, "-object", "filter-dump,id=dump,netdev=n0,file="+l.File("link.pcap"))
		}
	}
	h.qemu = exec.Command("timeout", args...)
	log, err := os.Create(l.File("qemu." + name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	h.qemu.Stdout, h.qemu.Stderr = log, log
	if err := h.qemu.Start(); err != nil {
		return nil, err
	}
	go func() {
		h.qemu.Wait()
		close(h.ended)
		h.listener.Close()
	}()
	return h, nil
}

// close ends the hosts. If the test failed, it keeps the lab's files beside the machine's files.
func (l *Lab) close(t *testing.T) {
	for _, h := range l.hosts {
		h.halt()
	}
	if t.Failed() {
		for _, h := range l.hosts {
			for _, file := range []string{"console.", "qemu."} {
				if b, _ := os.ReadFile(l.File(file + h.name)); len(b) > 0 {
					t.Logf("%s%s:\n%s", file, h.name, b[max(0, len(b)-tail):])
				}
			}
		}
		keep := filepath.Join(l.base, "failed-"+strings.ReplaceAll(t.Name(), "/", "-"))
		os.RemoveAll(keep)
		if err := os.CopyFS(keep, regular{l.dir}); err != nil {
			t.Logf("keeping the lab's files: %v", err)
		}
		t.Logf("the lab's files are in %s", keep)
	}
	os.RemoveAll(l.dir)
}

// Each runs a script on all hosts at the same time and returns their outputs, A's first. It ends
// the test unless all scripts succeed.
func (l *Lab) Each(t *testing.T, limit time.Duration, script string) []string {
	t.Helper()
	var jobs []*Job
	for _, h := range l.hosts {
		jobs = append(jobs, h.Start(t, script))
	}
	var outs []string
	for i, j := range jobs {
		r := j.Wait(limit)
		if r.Err() != nil {
			t.Errorf("host %s: %v", l.hosts[i].name, r.Err())
		}
		outs = append(outs, r.Out)
	}
	if t.Failed() {
		t.FailNow()
	}
	return outs
}

// Install copies programs from outside to /usr/local/bin of every host. Libraries that are
// installed outside need no copy.
func (l *Lab) Install(t *testing.T, files ...string) {
	t.Helper()
	script := "set -e\n"
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		if err := os.WriteFile(l.File(name), b, 0o755); err != nil {
			t.Fatal(err)
		}
		script += fmt.Sprintf("install /xfer/%s /usr/local/bin/%[1]s\n", name)
	}
	l.Each(t, time.Minute, script)
}
