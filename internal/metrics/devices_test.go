package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

func TestDevices(t *testing.T) {
	src, _ := source(t, noPeers)
	many := make(ctl.CounterList, 150)
	for i := range many {
		many[i] = ctl.Counter{Name: fmt.Sprintf("c%d", i), Value: uint64(i)}
	}
	src.Devices = func() (ctl.Devices, error) {
		var d ctl.Devices
		for i := range 15 {
			d.Devices = append(d.Devices, ctl.Device{Name: fmt.Sprintf("vf%d", i), Ports: []ctl.DevicePort{{Number: 1, State: "DOWN", Counters: many}}})
		}
		d.Devices = append(d.Devices, ctl.Device{Name: "mlx5_0", Used: true, Counters: ctl.CounterList{{Name: "alloc_pd_err", Value: 4}}, Ports: []ctl.DevicePort{{Number: 1, State: "ACTIVE", Counters: ctl.CounterList{{Name: "port_rcv_data", Value: 12}}}}})
		return d, nil
	}
	body := scrape(t, src)
	expect(t, body, `rdsd_device_port_up{device="mlx5_0",port="1"} 1`, `rdsd_device_port_up{device="vf0",port="1"} 0`,
		`rdsd_device_port_counter_total{counter="port_rcv_data",device="mlx5_0",port="1"} 12`,
		`rdsd_device_counter_total{counter="alloc_pd_err",device="mlx5_0"} 4`,
		`rdsd_device_port_counter_total{counter="c149",device="vf12",port="1"} 149`,
		`rdsd_metrics_truncated_device_series 302`, `rdsd_collector_errors_total{collector="devices"} 0`)
	if n := strings.Count(body, "\nrdsd_device_port_"); n > MaxDeviceSeries {
		t.Errorf("%d series", n)
	}
}
