package preload

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/rdstest"
)

var (
	providerDir = flag.String("preload.provider", os.Getenv("RDS_PROV"), "where a libfabric with the provider over PF_RDS is installed")
	fabtestsDir = flag.String("preload.fabtests", os.Getenv("FABTESTS"), "directory with fabtests' programs; the provider's bin if empty")
)

// fabtests are those that the provider is made for and that need no interface of the daemon's address. docs/interop.md has
// the others, and why they end as they do.
var fabtests = []string{
	"fi_cq_data -e rdm -o senddata", "fi_rdm", "fi_rdm -U", "fi_recv_cancel -e rdm -V",
	"fi_inject_test -A inject -v", "fi_inject_test -N -A inject -v", "fi_inject_test -A inj_complete -v", "fi_inject_test -N -A inj_complete -v",
	"fi_flood -e rdm -v -T 1", "fi_flood -e rdm -v -T 1 -U", "fi_rma_bw -e rdm -o write -I 5 -S 4096", "fi_rma_bw -e rdm -o write -I 5 -S 4096 -U",
	"fi_rma_bw -e rdm -o read -I 5 -S 4096", "fi_rma_bw -e rdm -o read -I 5 -S 4096 -U", "fi_rma_pingpong -e rdm -o write -I 5 -S 4096",
	"fi_rdm_atomic -I 5 -o all", "fi_rdm_pingpong -I 5", "fi_rdm_pingpong -I 5 -U", "fi_rdm_pingpong -I 5 -v", "fi_rdm_pingpong -I 5 -v -U",
	"fi_rdm_tagged_pingpong -I 5", "fi_rdm_tagged_pingpong -I 5 -U", "fi_rdm_tagged_pingpong -I 5 -v", "fi_rdm_tagged_bw -I 5",
	"fi_rdm_tagged_bw -I 5 -U", "fi_rdm_tagged_bw -I 5 -v", "fi_rdm_bw -I 5", "fi_resmgmt_test -e rdm",
	"FI_RDS_EAGER_RDMA=1 fi_rdm_pingpong -I 5 -v", "FI_RDS_EAGER_RDMA=1 fi_rdm_tagged_bw -I 5 -v",
	"fi_getinfo_test", "fi_dom_test -n 2", "fi_eq_test", "fi_cq_test", "fi_cntr_test", "fi_setopt_test",
}

// oneSided are programs that talk to nobody.
var oneSided = []string{"fi_getinfo_test", "fi_dom_test", "fi_eq_test", "fi_cq_test", "fi_cntr_test", "fi_setopt_test"}

// TestFabtests runs fabtests on libfabric's provider over PF_RDS, between two daemons.
func TestFabtests(t *testing.T) {
	if *providerDir == "" {
		t.Skip("no provider: RDS_PROV=DIR make afrds-judges, with libfabric and its provider over PF_RDS installed in DIR, and FABTESTS=DIR with fabtests")
	}
	programs := *fabtestsDir
	if programs == "" {
		programs = filepath.Join(*providerDir, "bin")
	}
	ds := rdstest.StartDaemons(t, 2)
	command := func(t *testing.T, d *rdstest.Daemon, program string, env []string, args ...string) *exec.Cmd {
		cmd := preloaded(t, d, "", program, args...)
		cmd.Env = append(append(cmd.Env, "LD_LIBRARY_PATH="+filepath.Join(*providerDir, "lib")), env...)
		return cmd
	}
	version(t, finish(t, command(t, ds[0], filepath.Join(*providerDir, "bin/fi_info"), nil, "--version")))
	for _, line := range fabtests {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			program := slices.IndexFunc(args, func(s string) bool { return !strings.Contains(s, "=") })
			env, name, args := args[:program], args[program], append(args[program+1:], "-p", "rds")
			path := filepath.Join(programs, name)
			if _, err := os.Stat(path); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(oneSided, name) {
				finish(t, command(t, ds[0], path, env, args...))
				return
			}
			a, b := ds[0].Addr().String(), ds[1].Addr().String()
			server := command(t, ds[0], path, env, append(args, "-s", a)...)
			serve(t, ds[0], server, command(t, ds[1], path, env, append(args, "-s", b, a)...))
		})
	}
}

// serve runs a server, which binds a socket at d, and then its client: a message to a socket that is not bound yet would be lost.
func serve(t *testing.T, d *rdstest.Daemon, server, client *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for len(ended) == 0 && bound(t, d) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	out, err := client.CombinedOutput()
	if err != nil {
		server.Process.Kill()
	}
	if served := <-ended; err != nil || served != nil {
		t.Errorf("client: %v\n%s\nserver: %v\n%s", err, out, served, log.String())
	}
}

// bound returns how many sockets are bound at d.
func bound(t *testing.T, d *rdstest.Daemon) int {
	t.Helper()
	c, err := ipc.Dial(t.Context(), d.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Call(&ipc.Hello{Version: ipc.Version, Role: ipc.RoleCtl, Name: "preload.test"}, nil); err != nil {
		t.Fatal(err)
	}
	req, err := json.Marshal(ctl.Request{Schema: ctl.Schema, Kind: ctl.KindSockets})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.CallJSON(req)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := ctl.Parse(raw, ctl.KindSockets)
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Sockets)
}
