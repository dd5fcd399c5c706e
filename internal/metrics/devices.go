package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdsd/rdsd/internal/ctl"
)

// MaxDeviceSeries bounds the series of RDMA devices. Ports of devices that the daemon uses
// come first.
const MaxDeviceSeries = 2048

var (
	portCounterDesc = desc("device_port_counter_total",
		"A counter of a port of an RDMA device, as the device names and counts it: port_rcv_data and port_xmit_data count four bytes at a time.", "device", "port", "counter")
	deviceCounterDesc = desc("device_counter_total", "A counter of an RDMA device as a whole, as the device names and counts it.", "device", "counter")
	portUpDesc        = desc("device_port_up", "1 for a port of an RDMA device that is active, else 0.", "device", "port")
	noDeviceDesc      = desc("metrics_truncated_device_series", "Series of RDMA devices that are left out.")
)

// collectDevices sends the series of the host's RDMA devices. It returns how many are left
// out.
func collectDevices(ch chan<- prometheus.Metric, devices []ctl.Device) (truncated int) {
	sent := 0
	for _, used := range []bool{true, false} {
		for i := range devices {
			d := &devices[i]
			if d.Used != used {
				continue
			}
			if n := len(d.Counters); sent+n > MaxDeviceSeries {
				truncated += n
			} else {
				sent += n
				for _, c := range d.Counters {
					ch <- prometheus.MustNewConstMetric(deviceCounterDesc, prometheus.CounterValue, float64(c.Value), d.Name, c.Name)
				}
			}
			for _, p := range d.Ports {
				if n := 1 + len(p.Counters); sent+n > MaxDeviceSeries {
					truncated += n
					continue
				}
				sent += 1 + len(p.Counters)
				collectPort(ch, d.Name, &p)
			}
		}
	}
	return truncated
}

func collectPort(ch chan<- prometheus.Metric, device string, p *ctl.DevicePort) {
	port, up := strconv.Itoa(p.Number), 0.0
	if p.State == "ACTIVE" {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(portUpDesc, prometheus.GaugeValue, up, device, port)
	for _, c := range p.Counters {
		ch <- prometheus.MustNewConstMetric(portCounterDesc, prometheus.CounterValue, float64(c.Value), device, port, c.Name)
	}
}
