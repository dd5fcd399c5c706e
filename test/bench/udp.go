package main

import (
	"net"

	"github.com/rdsd/rdsd/test/bench/worker"
)

// udpOpen opens a server's socket.
func udpOpen(w *worker.Worker) (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	tune(c)
	return c, w.Ready(c.LocalAddr().String())
}

func udpEcho(w *worker.Worker) error {
	c, err := udpOpen(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 64<<10)
	return w.Each(w.Serve, func() (int, error) {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return 0, err
		}
		_, err = c.WriteToUDPAddrPort(b[:n], from)
		return 2, err
	})
}

// udpSink counts what arrives. UDP drops what it has no room for.
func udpSink(w *worker.Worker) error {
	c, err := udpOpen(w)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 64<<10)
	return w.Each(w.Count, func() (int, error) {
		_, _, err := c.ReadFromUDPAddrPort(b)
		return 1, err
	})
}
