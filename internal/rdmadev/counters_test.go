package rdmadev

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/Mellanox/rdmamap"
)

// TestCounters: both folders of counters are read, and a device may lack one.
func TestCounters(t *testing.T) {
	before := rdmamap.RdmaClassDir
	rdmamap.RdmaClassDir = t.TempDir()
	t.Cleanup(func() { rdmamap.RdmaClassDir = before })
	for name, text := range map[string]string{
		"mlx5_0/ports/1/counters/port_rcv_data": "18446744073709551615\n", "mlx5_0/ports/1/counters/VL15_dropped": "1\n", "mlx5_0/ports/1/counters/link_downed": "N/A (no PMA)\n",
		"mlx5_0/ports/1/hw_counters/out_of_sequence": "7\n", "mlx5_0/ports/1/hw_counters/lifespan": "10\n", "siw0/ports/1/counters/port_xmit_data": "3\n",
	} {
		path := filepath.Join(rdmamap.RdmaClassDir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		device string
		port   int
		want   []Counter
	}{
		{"mlx5_0", 1, []Counter{{"link_downed", 0}, {"out_of_sequence", 7}, {"port_rcv_data", 1<<64 - 1}}},
		{"siw0", 1, []Counter{{"port_xmit_data", 3}}},
		{"siw0", 2, nil},
	} {
		if got := counters(tc.device, tc.port); !slices.Equal(got, tc.want) {
			t.Errorf("%s port %d: %v, want %v", tc.device, tc.port, got, tc.want)
		}
	}
}

// TestDeviceCounters: what a device counts beside its ports, of which some files are none.
func TestDeviceCounters(t *testing.T) {
	own := map[string]string{"class/infiniband/rxe0/hw_counters/lifespan": "10\n", "class/infiniband/rxe0/hw_counters/keep_alive_err": "3\n",
		"class/infiniband/rxe0/hw_counters/alloc_pd_err": "18446744073709551615\n", "class/infiniband/rxe0/hw_counters/odd": "N/A\n", "class/infiniband/rxe0/hw_counters/Bad": "1\n"}
	h := Look(sources(t, roce(), iwarp(), own))
	if got, want := h.DeviceCounters(&h.Devices[0]), []Counter{{"alloc_pd_err", 1<<64 - 1}, {"keep_alive_err", 3}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := h.DeviceCounters(&h.Devices[1]); len(got) != 0 {
		t.Errorf("%v of a device that has none", got)
	}
}

func TestNodes(t *testing.T) {
	h := Look(sources(t, roce(), iwarp()))
	if n := h.Devices[0].Nodes; len(n) != 2 || n[0].Path != "/dev/infiniband/rdma_cm" || n[0].Err != nil {
		t.Errorf("%+v", n)
	}
	if f := h.Folders(); len(f) != 2 || filepath.Base(f[0]) != "rxe0" {
		t.Errorf("%q", f)
	}
}
