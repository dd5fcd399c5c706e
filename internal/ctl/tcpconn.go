package ctl

// TCPConn is a TCP connection of RDS/TCP. Its sequences count bytes since it came up.
type TCPConn struct {
	LocalPort  uint16 `json:"local_port"`
	RemotePort uint16 `json:"remote_port"`
	HdrRemain  int    `json:"header_remain"` // bytes missing of the header that is arriving
	DataRemain int    `json:"data_remain"`
	Sent       uint64 `json:"sent"`
	Awaited    uint64 `json:"awaited"` // an acknowledgement up to here covers the last message
	Acked      uint64 `json:"acked"`   // by the peer's TCP
}
