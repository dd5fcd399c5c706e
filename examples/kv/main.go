// Command kv is a cache: one host has the values in its memory, the others put by calls and
// get by RDMA reads, which the server's program takes no part in.
//
//	kv -bind 10.0.0.1:4010
//	kv -to 10.0.0.1:4010 put KEY VALUE | get KEY
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"os/signal"

	"github.com/rdsd/rdsd/rds"
	"github.com/rdsd/rdsd/rds/rpc"
)

// A slot: u32 checksum of what follows, u16 lengths of key and value, key, value.
const slots, slotSize, header = 4096, 1024, 8

var le = binary.LittleEndian

func slotOf(key []byte) int64 { return int64(crc32.ChecksumIEEE(key)%slots) * slotSize }

func encode(key, value string) []byte {
	b := le.AppendUint16(le.AppendUint16(make([]byte, 4), uint16(len(key))), uint16(len(value)))
	b = append(b, key+value...)
	le.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

func decode(b []byte) (key, value []byte, whole bool) {
	if len(b) < header {
		return nil, nil, false
	}
	k, n := int(le.Uint16(b[4:])), header+int(le.Uint16(b[4:]))+int(le.Uint16(b[6:]))
	if n > min(len(b), slotSize) || crc32.ChecksumIEEE(b[4:n]) != le.Uint32(b) {
		return nil, nil, false
	}
	return b[header : header+k], b[header+k : n], true
}

func main() {
	var bind, to netip.AddrPort
	flag.TextVar(&bind, "bind", netip.MustParseAddrPort("0.0.0.0:0"), "`address:port` of the socket")
	flag.TextVar(&to, "to", netip.AddrPort{}, "`address:port` of the server; without it, be the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := rds.Open(ctx, rds.Options{})
	check(err)
	defer c.Close()
	s, err := c.Bind(bind)
	check(err)
	if !to.IsValid() {
		serve(ctx, c, s)
		return
	}
	calls := rpc.NewCaller(s, rpc.CallerOptions{})
	switch arg := flag.Arg; {
	case flag.NArg() == 3 && arg(0) == "put":
		_, err = calls.Call(ctx, to, "put", encode(arg(1), arg(2)))
		check(err)
	case flag.NArg() == 2 && arg(0) == "get":
		cookie, err := calls.Call(ctx, to, "open", nil)
		check(err)
		get(s.Remote(ctx, to, rds.Cookie(le.Uint64(cookie)), slots*slotSize), []byte(arg(1)))
	default:
		check(errors.New("want put KEY VALUE or get KEY"))
	}
}

func serve(ctx context.Context, c *rds.Client, s *rds.Socket) {
	mem, err := c.Alloc(slots * slotSize)
	check(err)
	region, err := s.Register(mem, 0, slots*slotSize, rds.AllowRead)
	check(err)
	fmt.Println("serving", s.LocalAddrPort())
	check(rpc.Serve(ctx, s, rpc.Methods{
		"open": func(ctx context.Context, r *rpc.Request) ([]byte, error) {
			return le.AppendUint64(nil, uint64(region.Cookie())), region.Expose(ctx, r.From)
		},
		"put": func(_ context.Context, r *rpc.Request) ([]byte, error) {
			key, _, ok := decode(r.Body)
			if !ok {
				return nil, errors.New("key and value are too long")
			}
			copy(mem.Bytes()[slotOf(key):], r.Body)
			return nil, nil
		},
	}, rpc.ServerOptions{Handlers: 1}))
}

// get reads a slot until it is whole, because a put may be at it.
func get(memory *rds.RemoteRegion, key []byte) {
	slot := make([]byte, slotSize)
	for {
		_, err := memory.ReadAt(slot, slotOf(key))
		check(err)
		if k, value, whole := decode(slot); whole && bytes.Equal(k, key) {
			fmt.Printf("%s\n", value)
			return
		} else if whole || le.Uint64(slot) == 0 {
			check(errors.New("not found"))
		}
	}
}

func check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
}
