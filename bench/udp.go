package main

import (
	"net"

	"github.com/rdsd/rdsd/bench/worker"
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
	return w.Serve(func() error {
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return err
			}
			if _, err := c.WriteToUDPAddrPort(b[:n], from); err != nil {
				return err
			}
			w.Msgs.Add(2)
		}
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
	return w.Count(func() error {
		for {
			if _, _, err := c.ReadFromUDPAddrPort(b); err != nil {
				return err
			}
			w.Msgs.Add(1)
		}
	})
}
